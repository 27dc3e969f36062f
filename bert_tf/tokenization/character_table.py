"""Normalizes the characters of many texts at once, with a NumPy lookup table.

`BasicTokenizer.normalize` treats nearly all characters independently of their context, so its
results fit in a table. The table flags the remaining characters.
"""

import unicodedata

import numpy as np

from bert_tf.tokenization.fast_wordpiece import UNKNOWN, try_build
from bert_tf.tokenization.reference import BasicTokenizer

_BLOCK = 256
_NUM_CODE_POINTS = 0x110000
# Halves of UTF-16 pairs, which UTF-8 cannot encode.
_SURROGATES = range(0xD800, 0xE000)

# Flags of a character: it is not in the table yet; its text must be tokenized by the reference; it
# separates words in any context.
MISSING, NEEDS_REFERENCE, SEPARATES = 1, 2, 4


class CharacterTable:
    """Table of normalized characters by code point, filled on demand in blocks.

    `flags` must not be called by several threads at once. `normalize` needs no lock, because
    entries never change once they are filled.

    Args:
        basic_tokenizer: the reference tokenizer.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer) -> None:
        self._reference = basic_tokenizer
        # Splits a text into words and returns 1 for `a`, 2 for `b`, and 0 for all other words.
        self._split = try_build([UNKNOWN, "a", "b"])
        self._flags = np.full(_NUM_CODE_POINTS, MISSING, np.uint8)
        # A character is normalized to `_normalized[start : start + count]`.
        self._counts = np.ones(_NUM_CODE_POINTS, np.uint8)
        self._starts = np.zeros(_NUM_CODE_POINTS, np.int32)
        self._normalized = np.zeros(0, np.uint32)

    def flags(self, codes: np.ndarray) -> np.ndarray:
        """Returns the flags, uint8 [N], of code points, uint32 [N]."""
        flags = self._flags[codes]
        if np.bitwise_or.reduce(flags, initial=0) & MISSING:
            for block in np.unique(codes[flags == MISSING] // _BLOCK).tolist():
                self._fill(block)
            flags = self._flags[codes]
        return flags

    def normalize(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalizes code points, uint32 [N], that were passed to `flags` before.

        Returns the normalized code points, uint32 [M], and the number of them that each original
        character became, uint8 [N].
        """
        counts = self._counts[codes]
        offsets = np.cumsum(counts, dtype=np.int64) - counts
        indices = np.repeat(self._starts[codes] - offsets, counts)
        indices += np.arange(len(indices))
        return self._normalized[indices], counts

    def _fill(self, block: int) -> None:
        codes = range(block * _BLOCK, (block + 1) * _BLOCK)
        chars = ["" if code in _SURROGATES else chr(code) for code in codes]
        normalized = [self._reference.normalize(char) for char in chars]
        word_ids = {"a": 1, "b": 2}
        expected = [
            [word_ids.get(word, 0) for word in self._reference.tokenize(f"a{chr(code)}b")]
            for code in codes
        ]
        # Keep the spaces around a character only if the compiled tokenizer needs them to split.
        texts = ["a" + form + "b" for spaced in normalized for form in (spaced.strip(), spaced)]
        words = self._split.tokenize(texts).to_list()
        chosen, flags = [], []
        for index, (char, spaced) in enumerate(zip(chars, normalized, strict=True)):
            words_if_stripped, words_if_spaced = words[2 * index : 2 * index + 2]
            chosen.append(spaced.strip() if words_if_stripped == expected[index] else spaced)
            needs_reference = (
                expected[index] not in (words_if_stripped, words_if_spaced)
                or not char
                or _depends_on_context(self._reference, char)
            )
            separates = expected[index][0] == 1 and expected[index][-1] == 2
            flags.append(NEEDS_REFERENCE * needs_reference | SEPARATES * separates)
        rows = slice(codes.start, codes.stop)
        counts = np.array([len(text) for text in chosen])
        self._counts[rows] = counts
        self._starts[rows] = len(self._normalized) + np.cumsum(counts) - counts
        new_codes = np.frombuffer("".join(chosen).encode("utf-32-le"), np.uint32)
        self._normalized = np.concatenate([self._normalized, new_codes])
        # Set the flags last: other threads may be reading the table.
        self._flags[rows] = flags


def _depends_on_context(reference: BasicTokenizer, char: str) -> bool:
    """Returns whether neighbouring characters can change how a character is normalized.

    They change the lower case of sigma, and the canonical order of the few combining marks that
    accent stripping does not remove.
    """
    return reference.do_lower_case and (
        char == "\N{GREEK CAPITAL LETTER SIGMA}"
        or any(map(unicodedata.combining, reference.normalize(char)))
    )
