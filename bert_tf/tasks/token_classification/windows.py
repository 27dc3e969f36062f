"""Splits sentences into windows, each of which is an input row: `[CLS] word pieces [SEP]`.

A sentence that does not fit into one row is split into windows that overlap by half or more. Each
word is labeled once, in the window that gives it the most context: the one whose middle is nearest
to the first piece of the word. Shapes: N windows, W words, S max_seq_length.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf.data.packing import pack_batch, truncated_lengths
from bert_tf.tokenization import BasicTokenizer, is_cjk
from bert_tf.tokenization.fast import BatchTokenizer, encode_words
from bert_tf.tokenization.ragged_ids import enumerate_groups

_NUM_SPECIAL_TOKENS = 2
_MAX_ABBREVIATION_LENGTH = 3
# Punctuation, a word, and punctuation after it.
_WORD = re.compile(r"\A([\W_]*)((?:.*[^\W_])?)([\W_]*)\Z", re.S)
_POSSESSIVE = re.compile(r"(?<=\w)(['’]s)\Z")


class WordWindows:
    """The windows of all sentences, in order.

    Args:
        words: the W words of all sentences, in order.
        sentence_starts: index of the first word of each sentence, followed by W. An empty sentence
            has no window.
        tokenizer: tokenizer with the model's vocabulary.
        max_seq_length: S; at least 3.
        document_starts: index of the first word of each document, followed by W; each window is
            filled up with the text around it in its document. None: no such context.

    Attributes:
        pieces: ids of the word pieces of each word; `[UNK]` for a word without pieces.
        start: index of the first piece of each window, int64 [N].
        length: number of pieces in each window, int64 [N].
        first_word: index of the first word labeled in each window, followed by W; int64 [N + 1].
        first_window: index of the first window of each sentence, followed by N; int64.
    """

    def __init__(
        self,
        words: Sequence[str],
        sentence_starts: Sequence[int],
        tokenizer: BatchTokenizer,
        max_seq_length: int,
        document_starts: Sequence[int] | None = None,
    ) -> None:
        vocab = tokenizer.reference.vocab
        self._special_ids = vocab["[CLS]"], vocab["[SEP]"]
        self._max_seq_length = max_seq_length
        self.pieces = encode_words(words, tokenizer, vocab["[UNK]"])
        room = max_seq_length - _NUM_SPECIAL_TOKENS
        self._place_windows(self.pieces.row_splits[np.asarray(sentence_starts, np.int64)], room)
        self.first_window = np.searchsorted(self.first_word, sentence_starts)
        if document_starts is not None:
            self._add_context(self.pieces.row_splits[np.asarray(document_starts, np.int64)], room)

    def __len__(self) -> int:
        return len(self.start)

    def _place_windows(self, sentence_offsets: np.ndarray, room: int) -> None:
        """Spreads windows of `room` pieces evenly over sentences, given their offsets in pieces."""
        sizes = np.diff(sentence_offsets)
        excess = np.maximum(sizes - room, 0)
        window_counts = 1 + -(-excess // max(room // 2, 1))
        sentence, index_in_sentence = enumerate_groups(window_counts)
        shift = index_in_sentence * excess[sentence] // np.maximum(window_counts[sentence] - 1, 1)
        start = sentence_offsets[:-1][sentence] + shift
        # The first piece that is nearer to the middle of a window than to the previous middle.
        first_nearer = start.copy()
        later = np.flatnonzero(index_in_sentence)
        first_nearer[later] = (start[later - 1] + start[later] + room - 1) // 2 + 1
        window_of_word = np.searchsorted(first_nearer, self.pieces.row_splits[:-1], "right") - 1
        # Drop windows that label no word: those inside a very long word, or of an empty sentence.
        used, first_words = np.unique(window_of_word, return_index=True)
        self.start = start[used]
        self.length = np.minimum(sizes, room)[sentence[used]]
        self.first_word = np.append(first_words, len(self.pieces))

    def _add_context(self, document_offsets: np.ndarray, room: int) -> None:
        """Extends each window within its document, by the same amount on both sides if possible."""
        ends = self.start + self.length
        next_document = np.searchsorted(document_offsets, self.start, "right")
        before = self.start - document_offsets[next_document - 1]
        after = document_offsets[next_document] - ends
        right, left = truncated_lengths(after, before, room - self.length)
        self.start = self.start - left
        self.length = left + self.length + right

    def inputs(self, first: int, stop: int) -> dict[str, np.ndarray]:
        """Returns the encoder's inputs for windows `first` to `stop` - 1: int32 [n, S] each."""
        start, length = self.start[first:stop], self.length[first:stop]
        pieces = self.pieces.take(np.zeros_like(start), start, length)
        return pack_batch(pieces, None, self._max_seq_length, *self._special_ids)

    def word_positions(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Locates the first piece of each word that is labeled in windows `first` to `stop` - 1.

        Returns, for each of these words, its row in `inputs(first, stop)` and the position of its
        first piece in that row; int64 [words].
        """
        first_words = self.first_word[first : stop + 1]
        row = np.repeat(np.arange(stop - first), np.diff(first_words))
        first_pieces = self.pieces.row_splits[first_words[0] : first_words[-1]]
        return row, 1 + first_pieces - self.start[first:stop][row]


def split_words(text: str) -> list[str]:
    """Splits a text like the CoNLL-2003 data: punctuation around a word becomes separate words.

    Punctuation inside a word stays ("O'Brien"), as does the period after a likely abbreviation:
    a word with other periods ("U.N."), a single capital letter or, except at the end of the text, a
    capitalized word of two or three letters ("Mr."). `'s` and each CJK character are words.
    """
    words: list[str] = []
    parts = text.split()
    for index, part in enumerate(parts):
        if any(is_cjk(char) for char in part):
            words += BasicTokenizer(do_lower_case=False).tokenize(part)
            continue
        ((before, word, after),) = _WORD.findall(part)
        word, *possessive = _POSSESSIVE.split(word)
        is_last = index == len(parts) - 1
        is_short = len(word) <= (1 if is_last else _MAX_ABBREVIATION_LENGTH)
        is_abbreviation = is_short and word[:1].isupper() and word[1:] == word[1:].lower()
        if after.startswith(".") and not possessive and ("." in word or is_abbreviation):
            word, after = f"{word}.", after[1:]
        words += [*before, *filter(None, (word, *possessive)), *after]
    return words


def locate_words(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Returns start and end, in characters of the text, of each word of `split_words(text)`."""
    places, position = [], 0
    for word in words:
        # Control characters inside a word are not part of it.
        ends = [position := text.index(char, position) + 1 for char in word]
        places.append((ends[0] - 1, ends[-1]))
    return places
