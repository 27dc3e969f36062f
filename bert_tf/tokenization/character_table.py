"""Normalizes all characters of many texts at once, by table look-up (NumPy).

`BasicTokenizer.normalize` treats nearly all characters independently, so its results fit in a
table. The table also flags the characters for which it does not.
"""

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.tokenization.reference import BasicTokenizer

_BLOCK = 256
_CODES = 0x110000
_SIGMA = 0x3A3

# Flags of a character: not in the table yet; its text needs the reference; it separates words
# whatever is before and after it; normalization changes it.
UNSEEN, ODD, BREAKS, CHANGES = 1, 2, 4, 8

# Texts -> words as numbers: 1 for `a`, 2 for `b`, 0 for all others.
Split = Callable[[Sequence[str]], list[list[int]]]


class CharacterTable:
    """Normalized characters by code point, in blocks that are filled on demand.

    `kinds` must not be called by several threads at once. `normalize` needs no lock, because
    entries never change once they are filled.

    Args:
        basic_tokenizer: the reference.
        split: the compiled tokenizer. The table adds spaces around punctuation and ideographs only
            where it would not split.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer, split: Split) -> None:
        self._reference = basic_tokenizer
        self._split = split
        self._kinds = np.full(_CODES, UNSEEN, np.uint8)
        # The number of characters each becomes, the first one, and where the others start.
        self._counts = np.ones(_CODES, np.uint8)
        self._first = np.zeros(_CODES, np.uint32)
        self._starts = np.zeros(_CODES, np.int32)
        self._others = np.zeros(0, np.uint32)

    def kinds(self, codes: np.ndarray) -> np.ndarray:
        """Returns the flags of characters: code points uint32 [N] -> uint8 [N]."""
        kinds = self._kinds[codes]
        if np.bitwise_or.reduce(kinds, initial=0) & UNSEEN:
            for block in np.unique(codes[kinds == UNSEEN] // _BLOCK).tolist():
                self._fill(block)
            kinds = self._kinds[codes]
        return kinds

    def normalize(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalizes characters.

        Args:
            codes: code points, uint32 [N], for which `kinds` was called.

        Returns:
            The normalized code points, uint32 [M], and how many each character became, uint8 [N].
        """
        counts = self._counts[codes]
        normalized = np.repeat(self._first[codes], counts)
        several = np.flatnonzero(counts > 1)
        ends = np.cumsum(counts, dtype=np.int64)[several]
        more, starts = counts[several], self._starts[codes[several]]
        while len(more):
            # From the last to the second.
            normalized[ends - 1] = self._others[starts + more - 2]
            left = more > 2
            more, ends, starts = more[left] - 1, ends[left] - 1, starts[left]
        return normalized, counts

    def _fill(self, block: int) -> None:
        codes = range(block * _BLOCK, (block + 1) * _BLOCK)
        normalized = [self._normalized(code) for code in codes]
        expected = [self._words(code) for code in codes]
        # The shortest form that is split correctly: bare, or surrounded by spaces.
        texts = ["a" + form + "b" for full in normalized for form in (full.strip(), full)]
        words = self._split(texts)
        chosen, kinds = [], []
        for index, (code, form) in enumerate(zip(codes, normalized, strict=True)):
            bare, spaced = words[2 * index : 2 * index + 2]
            chosen.append(form.strip() if bare == expected[index] else form)
            is_odd = (
                expected[index] not in (bare, spaced)
                or _is_surrogate(code)
                or _depends_on_context(self._reference, code)
            )
            breaks = expected[index][0] == 1 and expected[index][-1] == 2
            kinds.append(ODD * is_odd | BREAKS * breaks | CHANGES * (chosen[-1] != chr(code)))
        rows = slice(codes.start, codes.stop)
        others = np.array([max(len(form) - 1, 0) for form in chosen])
        self._counts[rows] = [len(form) for form in chosen]
        self._first[rows] = [ord(form[0]) if form else 0 for form in chosen]
        self._starts[rows] = len(self._others) + np.cumsum(others) - others
        more = "".join(form[1:] for form in chosen).encode("utf-32-le")
        self._others = np.concatenate([self._others, np.frombuffer(more, np.uint32)])
        # Last, because other threads may be reading.
        self._kinds[rows] = kinds

    def _normalized(self, code: int) -> str:
        return "" if _is_surrogate(code) else self._reference.normalize(chr(code))

    def _words(self, code: int) -> list[int]:
        words = self._reference.tokenize(f"a{chr(code)}b")
        return [{"a": 1, "b": 2}.get(word, 0) for word in words]


def _depends_on_context(reference: BasicTokenizer, code: int) -> bool:
    """Whether normalization of a character depends on its neighbours.

    This affects the lower case of one letter, and the canonical order of a few marks, those that
    remain when nonspacing marks are dropped.
    """
    return reference.do_lower_case and (
        code == _SIGMA or any(map(unicodedata.combining, reference.normalize(chr(code))))
    )


def _is_surrogate(code: int) -> bool:
    """Whether it is half of a UTF-16 pair, which UTF-8 cannot encode."""
    return 0xD800 <= code <= 0xDFFF
