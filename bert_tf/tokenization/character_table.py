"""What becomes of each character of a text, for all characters of many texts at once (NumPy).

`BasicTokenizer.normalize` treats nearly every character by itself. So its results can be looked
up in a table, and the rest is known: a flag says which characters need the reference.
"""

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.tokenization.reference import BasicTokenizer

_BLOCK = 256
_CODES = 0x110000
_SIGMA = 0x3A3

# Flags of a character: not looked at yet; the reference must see its text; a word ends there,
# whatever comes before and after; it becomes something else.
UNKNOWN, ODD, BREAKS, CHANGES = 1, 2, 4, 8

# Words of texts, numbered: 1 for `a`, 2 for `b`, 0 for any other.
Split = Callable[[Sequence[str]], list[list[int]]]


class CharacterTable:
    """Normalized characters by code point, in blocks that are filled when a text needs them.

    Of several threads one at a time may call `kinds`; `normalize` needs no lock, as what it was
    asked about no longer changes.

    Args:
        basic_tokenizer: the reference.
        split: splits texts that are normalized, but have no spaces around punctuation and
            ideographs, into words; the table adds spaces where it would not split.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer, split: Split) -> None:
        self._reference = basic_tokenizer
        self._split = split
        self._kinds = np.full(_CODES, UNKNOWN, np.uint8)
        # How many characters each becomes, the first of them, and where the others stand.
        self._counts = np.ones(_CODES, np.uint8)
        self._first = np.zeros(_CODES, np.uint32)
        self._starts = np.zeros(_CODES, np.int32)
        self._others = np.zeros(0, np.uint32)

    def kinds(self, codes: np.ndarray) -> np.ndarray:
        """What is known of each character: code points uint32 [N] -> flags uint8 [N]."""
        kinds = self._kinds[codes]
        if np.bitwise_or.reduce(kinds, initial=0) & UNKNOWN:
            for block in np.unique(codes[kinds == UNKNOWN] // _BLOCK).tolist():
                self._fill(block)
            kinds = self._kinds[codes]
        return kinds

    def normalize(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Looks characters up.

        Args:
            codes: code points, uint32 [N], that `kinds` was asked for.

        Returns:
            The normalized code points uint32 [M], and how many each character gave, uint8 [N].
        """
        counts = self._counts[codes]
        normalized = np.repeat(self._first[codes], counts)
        several = np.flatnonzero(counts > 1)
        places = np.cumsum(counts, dtype=np.int64)[several]
        more, starts = counts[several], self._starts[codes[several]]
        while len(more):
            # From the last to the second.
            normalized[places - 1] = self._others[starts + more - 2]
            left = more > 2
            more, places, starts = more[left] - 1, places[left] - 1, starts[left]
        return normalized, counts

    def _fill(self, block: int) -> None:
        codes = range(block * _BLOCK, (block + 1) * _BLOCK)
        found = [self._normalized(code) for code in codes]
        expected = [self._words(code) for code in codes]
        # The shortest form that is split rightly: bare, or with spaces around.
        texts = ["a" + form + "b" for forms in found for form in (forms.strip(), forms)]
        words = self._split(texts)
        chosen, kinds = [], []
        for index, (code, form) in enumerate(zip(codes, found, strict=True)):
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
        # Last, and not before all is known: other threads may be reading.
        self._kinds[rows] = kinds

    def _normalized(self, code: int) -> str:
        return "" if _is_surrogate(code) else self._reference.normalize(chr(code))

    def _words(self, code: int) -> list[int]:
        words = self._reference.tokenize(f"a{chr(code)}b")
        return [{"a": 1, "b": 2}.get(word, 0) for word in words]


def _depends_on_context(reference: BasicTokenizer, code: int) -> bool:
    """Whether what a character becomes is not known without its text.

    Lower case depends on the neighbours for one letter only, and canonical order (of what is left,
    after all nonspacing marks are dropped) for a few marks.
    """
    return reference.do_lower_case and (
        code == _SIGMA or any(map(unicodedata.combining, reference.normalize(chr(code))))
    )


def _is_surrogate(code: int) -> bool:
    """Whether it is half a character; no UTF-8 exists for it."""
    return 0xD800 <= code <= 0xDFFF
