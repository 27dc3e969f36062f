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

from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.alphabet import BETWEEN, BORDER, DROPPED, FIRST_SIGN, SPACE, Alphabet
from bert_tf.token_ids import TokenIds

# What stands before a text: its words are read with what stands before them.
_ZEROS = bytes(16)
_LONGEST = 16

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_OTHER_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
# Of the tables' places: 2 to the power of so many.
_FIRST_BITS, _SECOND_BITS = 17, 16


def _last_bytes(count: int) -> int:
    return (0xFFFFFFFFFFFFFFFF << 8 * (8 - count)) & 0xFFFFFFFFFFFFFFFF


# What belongs to a word of the 8 characters before a break, by its length. Of a longer word
# something that no word of 8 characters is: a zero in the middle.
_LAST_8 = np.array([*map(_last_bytes, range(9)), 0xFFFFFFFF00FFFFFF], np.uint64)
_UP_TO_8 = np.array([*map(_last_bytes, range(9))], np.uint64)
_BEFORE_THE_LAST_8 = np.array([0] * 8 + [*map(_last_bytes, range(9))], np.uint64)


class WordTable:
    """Turns texts of an alphabet into ids; not for several threads at once.

    A value below `vocab_size` is the id of a word that is one piece; from there on it is the number
    of a word of several pieces.

    Args:
        alphabet: of the texts.
        encode_words: gives the ids of words that have no breaks in them.
        vocab_size: no id is as large.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        encode_words: Callable[[list[bytes]], TokenIds],
        vocab_size: int,
    ) -> None:
        self._alphabet = alphabet
        self._encode_words = encode_words
        self._vocab_size = vocab_size
        bits = max(_FIRST_BITS, (2 * vocab_size).bit_length())
        self._bits, self._shift = np.uint64(bits), np.uint64(64 - bits)
        self._nothing = np.uint64((1 << bits) - 1)
        self._forget()

    def _forget(self) -> None:
        # All words; the tables find most of them faster.
        self._values: dict[bytes, int] = {}
        self._first = np.full(1 << int(self._bits), self._nothing)
        # The place of the word of no characters.
        self._first[0] = 0
        self._second = np.zeros((2, 1 << _SECOND_BITS), np.uint64)
        self._second_values = np.zeros(1 << _SECOND_BITS, np.int64)
        self._several = TokenIds.from_lists([])

    def encode(self, texts: Sequence[str]) -> TokenIds:
        """Ids of the tokens of each text.

        Args:
            texts: ASCII, or from `Alphabet.simplify`.
        """
        if len(self._values) > len(self._first) // 2:
            self._forget()
        joined = chr(BETWEEN).join(texts).encode("latin-1")
        joined = joined.translate(self._alphabet.ascii, DROPPED)
        text = b"".join([_ZEROS, joined, bytes([BORDER])])
        codes = np.frombuffer(text, np.uint8, offset=len(_ZEROS))
        ends = np.flatnonzero(codes >= SPACE)
        breaks = codes[ends]
        lengths = ends.copy()
        lengths[1:] -= ends[:-1]
        lengths[1:] -= 1
        values, rest = self._look_up(text, ends, lengths)
        if len(rest):
            places = zip((ends[rest] + len(_ZEROS)).tolist(), lengths[rest].tolist(), strict=True)
            values[rest] = self._look_up_words([text[end - size : end] for end, size in places])

        several = np.flatnonzero(values >= self._vocab_size)
        numbers = values[several] - self._vocab_size
        begins = self._several.row_splits[numbers]
        sizes = self._several.row_splits[numbers + 1] - begins
        is_sign = breaks >= FIRST_SIGN
        counts = ((lengths != 0).view(np.uint8) + is_sign.view(np.uint8)).astype(np.int64)
        counts[several] += sizes - 1
        bounds = np.zeros(len(ends) + 1, np.int64)
        np.cumsum(counts, out=bounds[1:])
        # What an empty word writes is overwritten by what comes next; so there is one more.
        ids = np.empty(bounds[-1] + 1, np.int32)
        ids[bounds[:-1]] = values.astype(np.int32)
        signs = np.flatnonzero(is_sign)
        ids[bounds[signs + 1] - 1] = self._alphabet.sign_ids[breaks[signs]]
        _copy(self._several.ids, begins, sizes, ids, bounds[several])
        borders = np.flatnonzero(breaks == BORDER)
        return TokenIds(ids[:-1], np.concatenate([[0], bounds[borders + 1]]))

    def _look_up(
        self, text: bytes, ends: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of words, int64 [W], and the numbers of those that are not in the tables."""
        size = len(text) - len(_ZEROS)
        # The 8 bytes before each place, and the 8 before them.
        last, before = (np.ndarray(size, "<u8", text, offset, (1,)) for offset in (8, 0))
        keys = last[ends]
        keys &= _LAST_8.take(lengths, mode="clip")
        keys *= _FACTOR
        values = self._first.take((keys >> self._shift).view(np.int64))
        keys <<= self._bits
        values ^= keys
        rest = np.flatnonzero(values >= self._nothing)
        at, sizes = ends[rest], lengths[rest]
        halves = np.stack(
            [
                before[at] & _BEFORE_THE_LAST_8.take(sizes, mode="clip"),
                last[at] & _UP_TO_8.take(sizes, mode="clip"),
            ]
        )
        places = _second_places(halves)
        known = (self._second[:, places] == halves).all(axis=0) & (sizes <= _LONGEST)
        found = values.view(np.int64)
        found[rest] = self._second_values[places]
        return found, rest[~known]

    def _look_up_words(self, words: list[bytes]) -> list[int]:
        new = [word for word in dict.fromkeys(words) if word not in self._values]
        if new:
            self._learn(new)
        return [self._values[word] for word in words]

    def _learn(self, words: list[bytes]) -> None:
        found = self._encode_words(words)
        values = found.ids[found.row_splits[:-1]].astype(np.int64)
        several = np.flatnonzero(found.lengths > 1)
        values[several] = self._vocab_size + len(self._several) + np.arange(len(several))
        self._several = TokenIds.concatenate([self._several, found.take(several)])
        self._values.update(zip(words, values.tolist(), strict=True))

        fits = (values < self._nothing) & (np.array([*map(len, words)]) <= _LONGEST)
        padded = [words[number].rjust(_LONGEST, b"\0") for number in np.flatnonzero(fits)]
        halves = np.frombuffer(b"".join(padded), "<u8").reshape(-1, 2).T
        keys, values = halves[1] * _FACTOR, values[fits]
        entries = (keys << self._bits) | values.astype(np.uint64)
        places = (keys >> self._shift).view(np.int64)
        # Who comes first stays, as frequent words do; so of several at once the first is the last
        # to be written.
        free = (halves[0] == 0) & (self._first[places] == self._nothing)
        self._first[places[free][::-1]] = entries[free][::-1]
        late = (halves[0] != 0) | (self._first[places] != entries)
        places = _second_places(halves[:, late])
        free = np.flatnonzero(self._second[1, places] == 0)[::-1]
        self._second[:, places[free]] = halves[:, late][:, free]
        self._second_values[places[free]] = values[late][free]


def _second_places(halves: np.ndarray) -> np.ndarray:
    mixed = (halves[0] * _OTHER_FACTOR) ^ (halves[1] * _FACTOR)
    return (mixed >> np.uint64(64 - _SECOND_BITS)).view(np.int64)


def _copy(
    source: np.ndarray,
    source_begins: np.ndarray,
    counts: np.ndarray,
    target: np.ndarray,
    target_begins: np.ndarray,
) -> None:
    """Copies stretches of one array to places of another."""
    ends = np.cumsum(counts)
    steps = np.arange(ends[-1] if len(ends) else 0)
    first = ends - counts
    places = np.repeat(target_begins - first, counts)
    places += steps
    sources = np.repeat(source_begins - first, counts)
    sources += steps
    target[places] = source[sources]
