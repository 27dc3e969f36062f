"""A tokenizer made of TensorFlow operations, for graphs that take texts.

It returns the same ids as `FullTokenizer`. Characters are looked up in tables that Python computes
in advance; only the lower case of sigma and the order of combining marks also depend on neighbours.

Shapes: B texts, C characters of all texts, W words of all texts, T tokens of a text.
"""

import functools
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, reason
from bert_tf.tokenization import FullTokenizer, clean_char, fast_wordpiece, is_punctuation

# Type checkers do not see the class methods of RaggedTensor.
_ragged: Any = tf.RaggedTensor

_NUM_CODE_POINTS = 0x110000
_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2
# Flags of input characters; the Unicode standard defines "cased" and "case-ignorable".
_DROPPED, _CASED, _CASE_IGNORABLE = 1, 2, 4
# Flags of decomposed characters. Spaces separate words; punctuation is a word by itself.
_ACCENT, _SPACE, _PUNCTUATION = 1, 2, 4


class GraphTokenizer(tf.Module):
    """Tokenizes texts in a graph, with vocabulary and settings of a `FullTokenizer`."""

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__()
        basic = tokenizer.basic_tokenizer
        self._do_lower_case, self._strip_accents = basic.do_lower_case, basic.strip_accents
        self._errors = "ignore" if basic.pretokenized else "replace"
        self._wordpiece = _load_wordpiece(tokenizer.vocab, basic.pretokenized)
        self._special_tokens = list(basic.special_tokens)
        self._special_ids = [tokenizer.vocab[token] for token in self._special_tokens]
        self._special_pattern = basic.special_pattern
        settings = self._do_lower_case, self._strip_accents, basic.pretokenized
        tables = map(tf.constant, _build_tables(*settings))
        self._input_flags, self._decomposed_flags, self._classes, *decompositions = tables
        self._counts, self._starts, self._decompositions = decompositions

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of UTF-8 strings [B], ragged int32 [B, T]; ignores invalid bytes."""
        if not self._special_tokens:
            return self._tokenize(texts)
        pattern = self._special_pattern
        parts = fast_wordpiece.tensorflow_text().regex_split(texts, pattern, pattern)
        strings = parts.flat_values  # [P]: special tokens, and what is between them
        is_token = strings[:, None] == tf.constant(self._special_tokens)  # [P, tokens]
        others = tf.where(tf.reduce_any(is_token, 1), tf.constant(""), strings)
        ids = tf.zeros_like(is_token, tf.int32) + tf.constant(self._special_ids)
        special_ids = tf.ragged.boolean_mask(ids, is_token)  # [P, 0 or 1]
        return parts.with_flat_values(
            tf.concat([self._tokenize(others), special_ids], axis=1)
        ).merge_dims(1, 2)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors=self._errors)
        # The index of its text, and the code point, of each character: both [C].
        rows, codes = tf.cast(codes.value_rowids(), tf.int64), codes.values
        flags = tf.gather(self._input_flags, codes)
        is_kept = flags & _DROPPED == 0
        rows, codes, flags = (tf.boolean_mask(x, is_kept) for x in (rows, codes, flags))
        if self._do_lower_case:
            codes = _lower_final_sigmas(codes, rows, flags)
        rows, codes = self._decompose(rows, codes)
        if self._strip_accents:
            rows, codes = self._sort_marks(rows, codes)
            is_kept = tf.gather(self._decomposed_flags, codes) & _ACCENT == 0
            rows, codes = tf.boolean_mask(rows, is_kept), tf.boolean_mask(codes, is_kept)
        flags = tf.gather(self._decomposed_flags, codes)
        word_rows, words = _join_words(rows, codes, flags)
        pieces = self._wordpiece.tokenize(words)  # [W, pieces]
        by_text = _ragged.from_value_rowids(
            pieces, word_rows, nrows=tf.size(texts, out_type=tf.int64)
        )
        return by_text.merge_dims(1, 2)

    def _decompose(self, rows: tf.Tensor, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        counts = tf.cast(tf.gather(self._counts, codes), tf.int32)
        starts = tf.gather(self._starts, codes)
        offsets = tf.cumsum(counts, exclusive=True)
        indices = tf.range(tf.reduce_sum(counts)) + tf.repeat(starts - offsets, counts)
        return tf.repeat(rows, counts), tf.gather(self._decompositions, indices)

    def _sort_marks(self, rows: tf.Tensor, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the combining marks after each letter by their canonical combining class."""
        classes = tf.cast(tf.gather(self._classes, codes), tf.int64)
        is_start = (classes == 0) | _starts_text(rows)
        order = tf.argsort(tf.cumsum(tf.cast(is_start, tf.int64)) * 256 + classes, stable=True)
        return tf.gather(rows, order), tf.gather(codes, order)


def _join_words(rows: tf.Tensor, codes: tf.Tensor, flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins characters to words; returns the text's index and the string of each word, both [W]."""
    is_punctuation = flags & _PUNCTUATION != 0
    is_space = flags & _SPACE != 0
    ends_word = is_punctuation | is_space
    follows_end = tf.concat([[True], ends_word[:-1]], 0)[: tf.size(codes)]
    is_start = is_punctuation | follows_end | _starts_text(rows)
    # Dropping spaces loses no start of a word: the character after a space is a start, too.
    is_kept = tf.logical_not(is_space)
    rows, codes, is_start = (tf.boolean_mask(x, is_kept) for x in (rows, codes, is_start))
    starts = tf.where(is_start)[:, 0]
    word_codes = _ragged.from_row_starts(codes, starts)
    words = tf.strings.unicode_encode(word_codes, "UTF-8")
    # The original limits the characters of a word, but the compiled tokenizer limits the bytes.
    is_long = word_codes.row_lengths() > fast_wordpiece.MAX_WORD_CHARS
    return tf.gather(rows, starts), tf.where(is_long, fast_wordpiece.TOO_LONG_WORD, words)


def _starts_text(rows: tf.Tensor) -> tf.Tensor:
    """Returns whether each character is the first of its text, bool [C]."""
    return tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]


def _lower_final_sigmas(codes: tf.Tensor, rows: tf.Tensor, flags: tf.Tensor) -> tf.Tensor:
    """Lower-cases the capital sigmas at the end of words, as `str.lower` does.

    A sigma is final if the character before it is cased and the character after it is not; both
    without counting case-ignorable characters.
    """
    sigmas = tf.where(codes == _SIGMA)[:, 0]
    counted = tf.where(flags & _CASE_IGNORABLE == 0)[:, 0]  # indices of characters that count
    is_cased = tf.gather(flags, counted) & _CASED != 0
    counted_rows = tf.gather(rows, counted)
    index = tf.searchsorted(counted, sigmas, out_type=tf.int64)  # of each sigma in `counted`

    def has_case(neighbour: tf.Tensor) -> tf.Tensor:
        last = tf.size(counted, out_type=tf.int64) - 1
        clipped = tf.clip_by_value(neighbour, 0, last)
        is_same_text = tf.gather(counted_rows, clipped) == tf.gather(rows, sigmas)
        return (neighbour == clipped) & is_same_text & tf.gather(is_cased, clipped)

    is_final = has_case(index - 1) & tf.logical_not(has_case(index + 1))
    final_sigmas = tf.boolean_mask(sigmas, is_final)
    updates = tf.fill([tf.size(final_sigmas)], _FINAL_SIGMA)
    return tf.tensor_scatter_nd_update(codes, final_sigmas[:, None], updates)


def _load_wordpiece(vocab: dict[str, int], pretokenized: bool) -> Any:
    if not fast_wordpiece.tensorflow_text():
        raise UserError(
            "Tokenization inside a model needs tensorflow-text for this TensorFlow version. Install"
            " it, or export a model that takes ids with export_model.py --text_input=false"
        )
    try:
        lines = fast_wordpiece.vocab_lines(vocab, pretokenized)
        return fast_wordpiece.build_wordpiece(lines, no_pretokenization=True)
    except RuntimeError as error:
        raise UserError(f"TensorFlow Text cannot use this vocabulary: {reason(error)}") from error


@functools.lru_cache(maxsize=2)
def _build_tables(
    do_lower_case: bool, strip_accents: bool, pretokenized: bool
) -> tuple[np.ndarray, ...]:
    """Builds the tables, which takes seconds; they only depend on Python's Unicode version."""
    decompositions = [chr(code) for code in range(_NUM_CODE_POINTS)]
    if pretokenized:  # each character stays as it is, and only spaces matter
        flags = [np.zeros(_NUM_CODE_POINTS, np.uint8), _build_table(lambda c: _SPACE * c.isspace())]
    else:
        flags = [_build_table(_input_flags), _build_table(_decomposed_flags)]
        decompositions = [clean_char(char) for char in decompositions]
    if do_lower_case:
        decompositions = [char.lower() for char in decompositions]
    if strip_accents:
        decompositions = [unicodedata.normalize("NFD", char) for char in decompositions]
    counts = np.array([len(text) for text in decompositions], np.int32)
    joined = "".join(decompositions).encode("utf-32-le", "surrogatepass")
    # All but the last are indexed by code point.
    return (
        *flags,
        _build_table(unicodedata.combining),  # 0 for characters that do not combine
        counts.astype(np.uint8),  # number of characters in the decomposition
        (np.cumsum(counts) - counts).astype(np.int32),  # start in the last table
        np.frombuffer(joined, np.int32),  # all decompositions, concatenated
    )


def _build_table(compute: Callable[[str], int]) -> np.ndarray:
    return np.array([compute(chr(code)) for code in range(_NUM_CODE_POINTS)], np.uint8)


def _input_flags(char: str) -> int:
    # Python does not expose these properties, but the lower case of a sigma after the character
    # shows them.
    is_cased = f"{char}Σ".lower().endswith("ς")
    is_ignorable = not is_cased and f"a{char}Σ".lower().endswith("ς")
    return _DROPPED * (not clean_char(char)) | _CASED * is_cased | _CASE_IGNORABLE * is_ignorable


def _decomposed_flags(char: str) -> int:
    is_accent = unicodedata.category(char) == "Mn"
    return _ACCENT * is_accent | _SPACE * char.isspace() | _PUNCTUATION * is_punctuation(char)
