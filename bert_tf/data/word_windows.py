"""Words with their surroundings as rows of the model: `[CLS] pieces of words [SEP]`.

N windows, W words, T pieces, S max_seq_length. A sentence is a row. One that is too long is cut
into windows that overlap, and each of its words is labelled in the window where it has most
context: the place of its first piece is nearest to the middle.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf.data.packing import put
from bert_tf.tokenization import BasicTokenizer, is_cjk
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

_SPECIAL_TOKENS = 2
_LONGEST_TITLE = 3
# What stands before a word, the word, a genitive and what stands behind.
_AROUND = re.compile(r"\A([\W_]*)(.*?)((?:(?<=\w)['’]s)?)([\W_]*)\Z", re.S)


class WordWindows:
    """Windows of sentences; their rows are made when they are asked for.

    Args:
        words: W of them, one sentence after the other.
        sentences: the first word of each sentence, and W; no sentence is empty.
        tokenizer: of the model's vocabulary, with `[UNK]`.
        max_seq_length: S; at least 3.
        documents: the first word of each document, and W: windows are filled up with the pieces
            before and after the sentence in its document. None for sentences alone.

    Attributes:
        pieces: of the words; a word without any has `[UNK]`.
        start: int64 [N]; the piece that each window begins with.
        length: int64 [N]; its pieces.
        first_word: int64 [N + 1]; the first word that is labelled in it, and W. Each word is
            labelled in one window; these rise.
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
        self._cls, self._sep = vocab["[CLS]"], vocab["[SEP]"]
        self._max_seq_length = max_seq_length
        self.pieces = _encode(words, tokenizer, vocab["[UNK]"])
        room = max_seq_length - _SPECIAL_TOKENS
        starts = self.pieces.row_splits[np.asarray(sentences, np.int64)]
        self._cut(starts, room)
        if documents is not None:
            borders = self.pieces.row_splits[np.asarray(documents, np.int64)]
            self._widen(borders, room)

    def __len__(self) -> int:
        return len(self.start)

    def _cut(self, sentences: np.ndarray, room: int) -> None:
        """Windows of `room` pieces, evenly over each sentence, that overlap by half or more."""
        sizes = np.diff(sentences)
        rest = np.maximum(sizes - room, 0)
        counts = 1 + -(-rest // max(room // 2, 1))
        sentence = np.repeat(np.arange(len(sizes)), counts)
        number = np.arange(len(sentence)) - np.repeat(np.cumsum(counts) - counts, counts)
        shift = number * rest[sentence] // np.maximum(counts[sentence] - 1, 1)
        start = sentences[:-1][sentence] + shift
        # A piece is nearer to the middle of the next window from here on.
        nearest = start.copy()
        next_ones = np.flatnonzero(number)
        nearest[next_ones] = (start[next_ones - 1] + start[next_ones] + room - 1) // 2 + 1
        first_pieces = self.pieces.row_splits[:-1]
        window = np.searchsorted(nearest, first_pieces, "right") - 1
        # A word of very many pieces leaves windows without the begin of a word.
        used, first_words = np.unique(window, return_index=True)
        self.start = start[used]
        self.length = np.minimum(sizes, room)[sentence[used]]
        self.first_word = np.append(first_words, len(self.pieces))

    def _widen(self, documents: np.ndarray, room: int) -> None:
        """Fills windows up, by half from each side; what one side lacks the other gives."""
        ends = self.start + self.length
        document = np.searchsorted(documents, self.start, "right")
        before = self.start - documents[document - 1]
        after = documents[document] - ends
        free = room - self.length
        left = np.minimum(before, np.maximum(free // 2, free - after))
        self.start = self.start - left
        self.length = self.length + left + np.minimum(after, free - left)

    def inputs(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Rows of the windows from `first` up to, not including, `last`.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`: int32 [n, S].
        """
        start, length = self.start[first:last], self.length[first:last]
        input_ids = np.zeros((len(start), self._max_seq_length), np.int32)
        input_ids[:, 0] = self._cls
        put(input_ids, self.pieces.ids, start, length, np.ones_like(length))
        input_ids[np.arange(len(start)), length + 1] = self._sep
        mask = np.arange(self._max_seq_length) < length[:, None] + _SPECIAL_TOKENS
        return {
            "input_ids": input_ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": np.zeros_like(input_ids),
        }

    def places(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the words are that are labelled in the windows from `first` up to `last`.

        Returns:
            For each word, in order: its row, counted from `first`, and the place of its first
            piece in the row; int64 [words].
        """
        begins = self.first_word[first : last + 1]
        row = np.repeat(np.arange(last - first), np.diff(begins))
        first_pieces = self.pieces.row_splits[begins[0] : begins[-1]]
        return row, 1 + first_pieces - self.start[first:last][row]


def split_words(text: str) -> list[str]:
    """Words of a text, as the CoNLL sets have them: punctuation around a word stands by itself.

    Inside of a word it stays ("O'Brien"), and so does the dot of what is probably an abbreviation:
    with other dots in it ("U.N."), of one capital, or, before the last word, capitalized and of two
    or three letters ("Mr."). `'s` is a word. CJK characters stand by themselves, as in the model's
    vocabulary.
    """
    found = []
    parts = text.split()
    for number, part in enumerate(parts, start=1):
        if any(is_cjk(char) for char in part):
            found += BasicTokenizer(do_lower_case=False).tokenize(part)
            continue
        ((before, word, genitive, after),) = _AROUND.findall(part)
        is_short = len(word) <= (_LONGEST_TITLE if number < len(parts) else 1)
        is_title = is_short and word[:1].isupper() and word[1:] == word[1:].lower()
        if after.startswith(".") and ("." in word or is_title):
            word, after = f"{word}.", after[1:]
        found += [*before, *filter(None, (word, genitive)), *after]
    return found


def _encode(words: Sequence[str], tokenizer: BatchTokenizer, unknown: int) -> RaggedIds:
    """Pieces of words; each different word is tokenized once."""
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(word, len(known)) for word in words], np.int64)
    found = tokenizer.encode(list(known))
    lengths = found.lengths
    # A word of control characters, say.
    empty = np.flatnonzero(lengths == 0)
    ids = np.insert(found.ids, found.row_splits[empty], unknown)
    splits = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))]).astype(np.int64)
    return RaggedIds(ids.astype(np.int32), splits).take(numbers)
