"""Ids of texts from the words that came before, which NumPy finds again.

A text has few different words, so most of the work is to find a word again. Up to 8 characters are
a 64-bit number. Times an odd number modulo 2^64, which loses nothing, its first bits say the place
in a table and all others stand there, beside the word's value: one look at 8 bytes tells whether it
is the word, and what it is (quotienting: Knuth, "The Art of Computer Programming" 3, 6.4, exercise
13). A second table has words of up to 16 characters, and those whose place was taken; what is in
neither is looked up by itself; and what is new the compiled tokenizer cuts.

W words (some of them empty, between two breaks), B texts. A break is a space, a punctuation
character, or the border between texts; each ends a word.
"""

import collections
from collections.abc import Callable

import numpy as np

from bert_tf.alphabet import BORDER, FIRST_SIGN, SPACE
from bert_tf.token_ids import TokenIds

# What stands before a text: its words are read with what stands before them.
_ZEROS = bytes(16)
_LONGEST = 16

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_OTHER_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
# Of the tables' places: 2 to the power of so many.
_FIRST_BITS, _SECOND_BITS = 16, 18
# A table that has learnt so many words learns no more; when it has met as many times more that it
# does not know it starts anew.
_MOST_WORDS, _MANY_TIMES = 1 << 16, 8
# The tokenizer gives all words of more characters the same id.
_LONGEST_KNOWN = 201


def _last_bytes(count: int) -> int:
    return (0xFFFFFFFFFFFFFFFF << 8 * (8 - count)) & 0xFFFFFFFFFFFFFFFF


# What belongs to a word of the 8 characters before a break and of the 8 before them, by its length
# and one for the break. Of longer words something that no word is: a zero in the middle.
_TOO_LONG = 0xFFFFFFFF00FFFFFF
_LAST_8 = np.array([0, *map(_last_bytes, range(9)), _TOO_LONG], np.uint64)
_UP_TO_8 = np.array([0, *map(_last_bytes, range(9))], np.uint64)
_BEFORE_THE_LAST_8 = np.array([0] * 9 + [*map(_last_bytes, range(9)), _TOO_LONG], np.uint64)


class WordTable:
    """Turns texts of an alphabet into ids; not for several threads at once.

    A value below `vocab_size` is the id of a word that is one piece; from there on it is the number
    of a word of several pieces.

    Args:
        sign_ids: of the alphabet: the id of each byte from `FIRST_SIGN` on.
        encode_words: gives the ids of words that have no breaks in them.
        vocab_size: no id is as large.

    Attributes:
        new_words: how many words of the last texts were new.
    """

    def __init__(
        self,
        sign_ids: np.ndarray,
        encode_words: Callable[[list[bytes]], TokenIds],
        vocab_size: int,
    ) -> None:
        self.new_words = self._unknown = 0
        self._sign_ids = sign_ids
        self._encode_words = encode_words
        self._vocab_size = vocab_size
        bits = max(_FIRST_BITS, (2 * vocab_size).bit_length())
        self._bits, self._shift = np.uint64(bits), np.uint64(64 - bits)
        self._nothing = np.uint64((1 << bits) - 1)
        self._forget()

    def _forget(self) -> None:
        self._unknown = 0
        # All words; the tables find most of them faster.
        self._values: dict[bytes, int] = {}
        self._first = np.full(1 << int(self._bits), self._nothing)
        # The place of the word of no characters.
        self._first[0] = 0
        # In each row the characters of a word in two halves, and its value.
        self._second = np.zeros((1 << _SECOND_BITS, 3), np.uint64)
        # Pieces of the words of several: of those that were learnt, and of all in the texts.
        self._learnt = self._several = TokenIds.from_lists([])

    def encode(self, texts: bytes) -> TokenIds:
        """Ids of the tokens of texts.

        Args:
            texts: from `Alphabet.encode`: each ends with `BORDER`.
        """
        if self._unknown > _MANY_TIMES * _MOST_WORDS:
            self._forget()
        self._several = self._learnt
        text = _ZEROS + texts
        codes = np.frombuffer(text, np.uint8, offset=len(_ZEROS))
        ends = np.flatnonzero(codes >= SPACE)
        breaks = codes.take(ends, mode="clip")
        # Of words with their breaks.
        sizes = np.empty_like(ends)
        sizes[0] = ends[0] + 1
        np.subtract(ends[1:], ends[:-1], out=sizes[1:])
        values, several = self._look_up(text, ends, sizes)

        is_empty = (sizes == 1).view(np.uint8)
        # No word has more than 200 pieces, so bytes suffice.
        counts = (breaks >= FIRST_SIGN).view(np.uint8) + 1
        counts -= is_empty
        begins, pieces = self._pieces(values[several])
        counts[several] += (pieces - 1).astype(np.uint8)
        bounds = _running_sums(counts)
        count = int(bounds[-1])
        # Empty words write to a place behind all others, a number of ones only.
        behind = (1 << count.bit_length()) - 1
        ids = np.empty(behind + 1, np.int32)
        places = np.multiply(is_empty, behind, dtype=np.int64)
        places |= bounds[:-1]
        ids[places] = values.astype(np.int32)
        places = bounds[several]
        while len(places):
            ids[places] = self._several.ids[begins]
            more = np.flatnonzero(pieces > 1)
            places, begins, pieces = places[more] + 1, begins[more] + 1, pieces[more] - 1
        others = np.flatnonzero(breaks != SPACE)
        lasts, breaks = bounds[others + 1], breaks[others]
        signs, borders = np.flatnonzero(breaks != BORDER), np.flatnonzero(breaks == BORDER)
        ids[lasts[signs] - 1] = self._sign_ids[breaks[signs]]
        return TokenIds(ids[:count], np.concatenate([[0], lasts[borders]]))

    def _pieces(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the pieces of words begin, and how many they are."""
        numbers = values - self._vocab_size
        begins = self._several.row_splits[numbers]
        return begins, self._several.row_splits[numbers + 1] - begins

    def _look_up(
        self, text: bytes, ends: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of words, int64 [W], and the numbers of those of several pieces."""
        # Of a view that is not aligned `take` makes a copy, and is twice as fast as an index.
        keys = _bytes_before(text, 8).take(ends, mode="clip")
        keys &= _LAST_8.take(sizes, mode="clip")
        keys *= _FACTOR
        entries = self._first.take((keys >> self._shift).view(np.int64), mode="clip")
        keys <<= self._bits
        # What is left of an entry whose key is the word's is the value.
        entries ^= keys
        # Of several pieces, or not in the table.
        others = np.flatnonzero(entries >= np.uint64(self._vocab_size))
        rest = others[np.flatnonzero(entries[others] >= self._nothing)]
        values = entries.view(np.int64)
        values[rest] = self._look_up_rest(text, ends[rest], sizes[rest])
        return values, others[np.flatnonzero(values[others] >= self._vocab_size)]

    def _look_up_rest(self, text: bytes, ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Values of words that are not in the first table."""
        back = _bytes_before(text, 8)[ends] & _UP_TO_8.take(sizes, mode="clip")
        front = _bytes_before(text, 16)[ends] & _BEFORE_THE_LAST_8.take(sizes, mode="clip")
        rows = self._second.take(_second_places(front, back), axis=0)
        found = rows[:, 2].astype(np.int64)
        rest = np.flatnonzero((rows[:, 0] != front) | (rows[:, 1] != back))
        ends = ends[rest] + len(_ZEROS)
        # A longer one is like its last characters.
        begins = ends - np.minimum(sizes[rest] - 1, _LONGEST_KNOWN)
        words = [text[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        found[rest] = self._look_up_words(words)
        return found

    def _look_up_words(self, words: list[bytes]) -> list[int]:
        """Values of words that are not in any table."""
        new = [word for word in dict.fromkeys(words) if word not in self._values]
        self.new_words = len(new)
        if not new:
            return [self._values[word] for word in words]
        found = self._encode_words(new)
        values = found.ids[found.row_splits[:-1]].astype(np.int64)
        several = np.flatnonzero(found.lengths > 1)
        values[several] = self._vocab_size + len(self._several) + np.arange(len(several))
        self._several = TokenIds.concatenate([self._several, found.take(several)])
        known = self._values
        if len(known) < _MOST_WORDS:
            self._learn(new, values)
        else:
            self._unknown += len(new)
            known = collections.ChainMap(dict(zip(new, values.tolist(), strict=True)), known)
        return [known[word] for word in words]

    def _learn(self, words: list[bytes], values: np.ndarray) -> None:
        self._learnt = self._several
        self._values.update(zip(words, values.tolist(), strict=True))
        fits = (values < self._nothing) & (np.array([*map(len, words)]) <= _LONGEST)
        padded = [words[number].rjust(_LONGEST, b"\0") for number in np.flatnonzero(fits)]
        front, back = np.frombuffer(b"".join(padded), "<u8").reshape(-1, 2).T
        keys, values = back * _FACTOR, values[fits]
        entries = (keys << self._bits) | values.view(np.uint64)
        places = (keys >> self._shift).view(np.int64)
        # The first word to take a place keeps it: frequent words come early.
        new = _first_of_each(places, (front == 0) & (self._first[places] == self._nothing))
        self._first[places[new]] = entries[new]
        late = (front != 0) | (self._first[places] != entries)
        rows = np.stack([front, back, values.view(np.uint64)], axis=1)[late]
        places = _second_places(rows[:, 0], rows[:, 1])
        new = _first_of_each(places, self._second[places, 1] == 0)
        self._second[places[new]] = rows[new]


def _running_sums(counts: np.ndarray) -> np.ndarray:
    """Sums of the first numbers: uint8 [N] -> int64 [N + 1].

    Of 8 bytes at once, which is twice as fast as `cumsum`: as a number, times one that has a 1 in
    each byte, they are their own running sums.
    """
    size = -(-len(counts) // 8)
    sums = np.zeros(8 * size + 1, np.int64)
    if counts.max(initial=0) > 31:  # 8 of these do not fit into a byte.
        np.cumsum(counts, out=sums[1 : len(counts) + 1])
        return sums[: len(counts) + 1]
    padded = np.zeros(8 * size, np.uint8)
    padded[: len(counts)] = counts
    eights = padded.view("<u8") * np.uint64(0x0101010101010101)
    rows = sums[1:].reshape(size, 8)
    rows[:] = eights.view(np.uint8).reshape(size, 8)
    rows[1:] += np.cumsum(rows[:-1, 7])[:, None]
    return sums[: len(counts) + 1]


def _bytes_before(text: bytes, count: int) -> np.ndarray:
    """The first 8 of so many bytes before each place, uint64."""
    offset = len(_ZEROS) - count
    return np.ndarray(len(text) - len(_ZEROS), "<u8", text, offset, (1,))


def _second_places(front: np.ndarray, back: np.ndarray) -> np.ndarray:
    mixed = (front * _OTHER_FACTOR) ^ (back * _FACTOR)
    return (mixed >> np.uint64(64 - _SECOND_BITS)).view(np.int64)


def _first_of_each(places: np.ndarray, is_free: np.ndarray) -> np.ndarray:
    """The first number of each place that is free."""
    free = np.flatnonzero(is_free)
    return free[np.unique(places[free], return_index=True)[1]]
