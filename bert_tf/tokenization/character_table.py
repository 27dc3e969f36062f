"""Normalizes all characters of many texts at once, by table look-up (NumPy).

`BasicTokenizer.normalize` treats nearly all characters independently, so its results fit in a
table, which flags the others.
"""

import unicodedata

import numpy as np

from bert_tf.tokenization.fast_wordpiece import UNKNOWN, fast_wordpiece
from bert_tf.tokenization.reference import BasicTokenizer

_BLOCK = 256
_CODES = 0x110000
# Halves of UTF-16 pairs, which UTF-8 cannot encode.
_SURROGATES = range(0xD800, 0xE000)

# Flags of a character: not in the table yet; its text needs the reference; it separates words in
# any context.
UNSEEN, ODD, BREAKS = 1, 2, 4


class CharacterTable:
    """Normalized characters by code point, in blocks that are filled on demand.

    `kinds` must not be called by several threads at once. `normalize` needs no lock, because
    entries never change once they are filled.

    Args:
        basic_tokenizer: the reference.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer) -> None:
        self._reference = basic_tokenizer
        # Splits texts to words as numbers: 1 for `a`, 2 for `b`, 0 for all others.
        self._split = fast_wordpiece([UNKNOWN, "a", "b"])
        self._kinds = np.full(_CODES, UNSEEN, np.uint8)
        # Each character becomes `_forms[start : start + count]`.
        self._counts = np.ones(_CODES, np.uint8)
        self._starts = np.zeros(_CODES, np.int32)
        self._forms = np.zeros(0, np.uint32)

    def kinds(self, codes: np.ndarray) -> np.ndarray:
        """Returns the flags of characters: code points uint32 [N] -> uint8 [N]."""
        kinds = self._kinds[codes]
        if np.bitwise_or.reduce(kinds, initial=0) & UNSEEN:
            for block in np.unique(codes[kinds == UNSEEN] // _BLOCK).tolist():
                self._fill(block)
            kinds = self._kinds[codes]
        return kinds

    def normalize(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalizes characters, uint32 [N], for which `kinds` was called.

        Returns the normalized code points, uint32 [M], and how many each character became [N].
        """
        counts = self._counts[codes]
        before = np.cumsum(counts, dtype=np.int64) - counts
        indices = np.repeat(self._starts[codes] - before, counts)
        indices += np.arange(len(indices))
        return self._forms[indices], counts

    def _fill(self, block: int) -> None:
        codes = range(block * _BLOCK, (block + 1) * _BLOCK)
        chars = ["" if code in _SURROGATES else chr(code) for code in codes]
        normalized = [self._reference.normalize(char) for char in chars]
        numbers = {"a": 1, "b": 2}
        expected = [
            [numbers.get(word, 0) for word in self._reference.tokenize(f"a{chr(code)}b")]
            for code in codes
        ]
        # The shortest form that the compiled tokenizer splits correctly: bare, or between spaces.
        texts = ["a" + form + "b" for full in normalized for form in (full.strip(), full)]
        words = self._split.tokenize(texts).to_list()
        chosen, kinds = [], []
        for index, (char, form) in enumerate(zip(chars, normalized, strict=True)):
            bare, spaced = words[2 * index : 2 * index + 2]
            chosen.append(form.strip() if bare == expected[index] else form)
            is_odd = (
                expected[index] not in (bare, spaced)
                or not char
                or _depends_on_context(self._reference, char)
            )
            breaks = expected[index][0] == 1 and expected[index][-1] == 2
            kinds.append(ODD * is_odd | BREAKS * breaks)
        rows = slice(codes.start, codes.stop)
        counts = np.array([len(form) for form in chosen])
        self._counts[rows] = counts
        self._starts[rows] = len(self._forms) + np.cumsum(counts) - counts
        forms = np.frombuffer("".join(chosen).encode("utf-32-le"), np.uint32)
        self._forms = np.concatenate([self._forms, forms])
        # Last, because other threads may be reading.
        self._kinds[rows] = kinds


def _depends_on_context(reference: BasicTokenizer, char: str) -> bool:
    """Returns whether neighbours change a character's normal form.

    They change the lower case of one letter, and the canonical order of the few marks that are not
    dropped as nonspacing.
    """
    return reference.do_lower_case and (
        char == "\N{GREEK CAPITAL LETTER SIGMA}"
        or any(map(unicodedata.combining, reference.normalize(char)))
    )
