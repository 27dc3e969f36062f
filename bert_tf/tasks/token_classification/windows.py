"""Windows of sentences as rows of the model: `[CLS] pieces of words [SEP]`.

A sentence that does not fit into one row is split into overlapping windows. Each word is labeled in
the window that gives it the most context: where its first piece is nearest the middle. Shapes: N
windows, W words, S max_seq_length.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf.data.packing import pack_batch
from bert_tf.tokenization import BasicTokenizer, is_cjk
from bert_tf.tokenization.fast import BatchTokenizer, encode_words
from bert_tf.tokenization.ragged_ids import enumerate_groups

_SPECIAL_TOKENS = 2
_MAX_TITLE_LENGTH = 3
# Punctuation before a word, the word, a genitive, and punctuation after it.
_WORD = re.compile(r"\A([\W_]*)(.*?)((?:(?<=\w)['’]s)?)([\W_]*)\Z", re.S)


class WordWindows:
    """Windows of sentences.

    Args:
        words: the W words of all sentences, in order.
        sentences: the first word of each sentence, and W. An empty sentence has no window.
        tokenizer: tokenizer with the model's vocabulary.
        max_seq_length: S; at least 3.
        documents: the first word of each document, and W; windows are filled up with the pieces
            before and after the sentence in its document. None: no context.

    Attributes:
        pieces: word pieces of the words; `[UNK]` for a word without pieces.
        start: int64 [N]; the first piece of each window.
        length: int64 [N]; its number of pieces.
        first_word: int64 [N + 1], ascending; the first word that is labeled in each window, and W.
        first_window: int64 [sentences + 1]; the first window of each sentence, and N.
    """

    def __init__(
        self,
        words: Sequence[str],
        sentences: Sequence[int],
        tokenizer: BatchTokenizer,
        max_seq_length: int,
        documents: Sequence[int] | None = None,
    ) -> None:
        vocab = tokenizer.reference.vocab
        self._special_ids = vocab["[CLS]"], vocab["[SEP]"]
        self._max_seq_length = max_seq_length
        self.pieces = encode_words(words, tokenizer, vocab["[UNK]"])
        room = max_seq_length - _SPECIAL_TOKENS
        self._place_windows(self.pieces.row_splits[np.asarray(sentences, np.int64)], room)
        self.first_window = np.searchsorted(self.first_word, sentences)
        if documents is not None:
            self._add_context(self.pieces.row_splits[np.asarray(documents, np.int64)], room)

    def __len__(self) -> int:
        return len(self.start)

    def _place_windows(self, sentences: np.ndarray, room: int) -> None:
        """Spreads windows of `room` pieces evenly over each sentence, with half or more overlap."""
        sizes = np.diff(sentences)
        excess = np.maximum(sizes - room, 0)
        counts = 1 + -(-excess // max(room // 2, 1))
        sentence, number = enumerate_groups(counts)
        shift = number * excess[sentence] // np.maximum(counts[sentence] - 1, 1)
        start = sentences[:-1][sentence] + shift
        # The first piece that is nearer to the middle of a window than to that of the previous one.
        nearest = start.copy()
        later = np.flatnonzero(number)
        nearest[later] = (start[later - 1] + start[later] + room - 1) // 2 + 1
        window = np.searchsorted(nearest, self.pieces.row_splits[:-1], "right") - 1
        # No word is labeled in a window inside a very long word, or in an empty sentence.
        used, first_words = np.unique(window, return_index=True)
        self.start = start[used]
        self.length = np.minimum(sizes, room)[sentence[used]]
        self.first_word = np.append(first_words, len(self.pieces))

    def _add_context(self, documents: np.ndarray, room: int) -> None:
        """Extends windows within their documents, by the same amount on both sides if possible."""
        ends = self.start + self.length
        document = np.searchsorted(documents, self.start, "right")
        before = self.start - documents[document - 1]
        after = documents[document] - ends
        free = room - self.length
        left = np.minimum(before, np.maximum(free // 2, free - after))
        self.start = self.start - left
        self.length = self.length + left + np.minimum(after, free - left)

    def inputs(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Returns the rows of windows `first` to `last` - 1: int32 [n, S] each."""
        start, length = self.start[first:last], self.length[first:last]
        pieces = self.pieces.take(np.zeros_like(start), start, length)
        return pack_batch(pieces, None, self._max_seq_length, *self._special_ids)

    def word_positions(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Locates the first piece of each word that is labeled in windows `first` to `last` - 1.

        Returns rows, counted from `first`, and positions in the rows; int64 [words].
        """
        first_words = self.first_word[first : last + 1]
        row = np.repeat(np.arange(last - first), np.diff(first_words))
        first_pieces = self.pieces.row_splits[first_words[0] : first_words[-1]]
        return row, 1 + first_pieces - self.start[first:last][row]


def split_words(text: str) -> list[str]:
    """Splits a text into words as in the CoNLL files: punctuation around a word is separated.

    Punctuation inside a word stays ("O'Brien"), as does the period of a likely abbreviation: one
    with other periods ("U.N."), a single capital, or, except at the end of the text, a capitalized
    word of two or three letters ("Mr."). `'s` and each CJK character are separate words.
    """
    words: list[str] = []
    parts = text.split()
    for number, part in enumerate(parts, start=1):
        if any(is_cjk(char) for char in part):
            words += BasicTokenizer(do_lower_case=False).tokenize(part)
            continue
        ((before, word, genitive, after),) = _WORD.findall(part)
        is_short = len(word) <= (_MAX_TITLE_LENGTH if number < len(parts) else 1)
        is_title = is_short and word[:1].isupper() and word[1:] == word[1:].lower()
        if after.startswith(".") and ("." in word or is_title):
            word, after = f"{word}.", after[1:]
        words += [*before, *filter(None, (word, genitive)), *after]
    return words
