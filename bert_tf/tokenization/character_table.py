"""Normalizes the characters of many texts at once, with a NumPy lookup table.

`BasicTokenizer.normalize` treats nearly all characters independently of their context, so a table
can store what each of them becomes. The other characters are flagged: texts that contain them must
be tokenized by the reference.
"""

import unicodedata

import numpy as np

from bert_tf.tokenization import BasicTokenizer
from bert_tf.tokenization.fast_wordpiece import UNKNOWN, try_build

_BLOCK_SIZE = 256
_NUM_CODE_POINTS = 0x110000
# Halves of UTF-16 pairs, which UTF-8 cannot encode.
_SURROGATES = range(0xD800, 0xE000)

# Flags of a character: its block is not in the table yet; a text that contains it must be tokenized
# by the reference; it separates words in any context.
MISSING, NEEDS_REFERENCE, SEPARATES = 1, 2, 4


class CharacterTable:
    """Table of normalized characters by code point, whose blocks are filled when they are needed.

    `flags` fills blocks, so only one thread at a time may call it. `normalize` needs no lock,
    because filled blocks never change.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer) -> None:
        self._reference = basic_tokenizer
        # The compiled tokenizer of `fast_wordpiece` with a toy vocabulary, whose ids reveal how it
        # splits a text: the word "a" has the id 1, "b" has 2, and all others have 0.
        self._compiled = try_build([UNKNOWN, "a", "b"])
        self._flags = np.full(_NUM_CODE_POINTS, MISSING, np.uint8)
        # A character becomes the code points `_normalized[start : start + count]`.
        self._counts = np.ones(_NUM_CODE_POINTS, np.uint8)
        self._starts = np.zeros(_NUM_CODE_POINTS, np.int32)
        self._normalized = np.zeros(0, np.uint32)

    def flags(self, codes: np.ndarray) -> np.ndarray:
        """Returns the flags, uint8 [N], of the code points `codes`, uint32 [N]."""
        flags = self._flags[codes]
        if np.bitwise_or.reduce(flags, initial=0) & MISSING:
            counts = np.bincount(codes[flags == MISSING] // _BLOCK_SIZE)
            for block in np.flatnonzero(counts).tolist():
                self._fill(block)
            flags = self._flags[codes]
        return flags

    def normalize(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalizes code points, uint32 [N], all of which were passed to `flags` before.

        Returns the M code points that they become, uint32 [M], and how many of them come from each
        original one, uint8 [N].
        """
        counts = self._counts[codes]
        offsets = np.cumsum(counts, dtype=np.int64) - counts
        indices = np.repeat(self._starts[codes] - offsets, counts)
        indices += np.arange(len(indices))
        return self._normalized[indices], counts

    def _fill(self, block: int) -> None:
        codes = range(block * _BLOCK_SIZE, (block + 1) * _BLOCK_SIZE)
        chars = ["" if code in _SURROGATES else chr(code) for code in codes]
        normalized = [self._reference.normalize(char) for char in chars]
        word_ids = {"a": 1, "b": 2}
        expected = [
            [word_ids.get(word, 0) for word in self._reference.tokenize(f"a{chr(code)}b")]
            for code in codes
        ]
        # Try each character without and with the spaces that `normalize` puts around it, and keep
        # the spaces only if the compiled tokenizer needs them to find the reference's words.
        texts = ["a" + form + "b" for spaced in normalized for form in (spaced.strip(), spaced)]
        words = self._compiled.tokenize(texts).to_list()
        chosen_forms, flags = [], []
        for index, (char, spaced) in enumerate(zip(chars, normalized, strict=True)):
            words_if_stripped, words_if_spaced = words[2 * index : 2 * index + 2]
            needs_spaces = words_if_stripped != expected[index]
            chosen_forms.append(spaced if needs_spaces else spaced.strip())
            needs_reference = (
                expected[index] not in (words_if_stripped, words_if_spaced)
                or not char
                or _depends_on_context(self._reference, char)
            )
            separates = expected[index][0] == 1 and expected[index][-1] == 2
            flags.append(NEEDS_REFERENCE * needs_reference | SEPARATES * separates)
        entries = slice(codes.start, codes.stop)
        counts = np.array([len(form) for form in chosen_forms])
        self._counts[entries] = counts
        self._starts[entries] = len(self._normalized) + np.cumsum(counts) - counts
        new_codes = np.frombuffer("".join(chosen_forms).encode("utf-32-le"), np.uint32)
        self._normalized = np.concatenate([self._normalized, new_codes])
        # Set the flags last: until then, `normalize` in other threads does not use these entries.
        self._flags[entries] = flags


def _depends_on_context(reference: BasicTokenizer, char: str) -> bool:
    """Returns whether neighbouring characters can change how a character is normalized.

    They can if texts are lower-cased, as a sigma at the end of a word has a different lower case;
    and if accents are stripped: the few combining marks that remain are sorted in canonical order.
    """
    if reference.do_lower_case and char == "\N{GREEK CAPITAL LETTER SIGMA}":
        return True
    return reference.strip_accents and any(map(unicodedata.combining, reference.normalize(char)))
