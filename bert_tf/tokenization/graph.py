"""The tokenizer as TensorFlow operations, for graphs that take texts.

Returns the ids of `FullTokenizer` for every text. Python computes tables of all characters; only
the final sigma and the order of combining marks depend on neighbours. B texts, C characters, W
words, T tokens.
"""

import functools
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.tokenization.fast_wordpiece import (
    MAX_WORD_CHARS,
    TOO_LONG,
    build_wordpiece,
    lines_of,
    tensorflow_text,
)
from bert_tf.tokenization.reference import FullTokenizer, clean_char, is_punctuation

# Type checkers do not see its class methods.
_ragged: Any = tf.RaggedTensor

_CODES = 0x110000
_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2
# Flags of given characters: dropped, has case, skipped when looking for case.
_DROPPED, _CASED, _IGNORED = 1, 2, 4
# Flags of decomposed characters: accent, between words, a word of its own.
_ACCENT, _SPACE, _ALONE = 1, 2, 4


class GraphTokenizer(tf.Module):
    """Tokenizes texts in a graph, as the tokenizer that it is given does."""

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__()
        self._lowers = tokenizer.basic_tokenizer.do_lower_case
        self._wordpiece = _wordpiece(tokenizer.vocab)
        tables = map(tf.constant, _tables(self._lowers))
        self._given, self._counts, self._starts, self._forms, self._flags, self._classes = tables

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, ragged int32 [B, T], of UTF-8 strings [B]; drops invalid bytes."""
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        rows, codes = tf.cast(codes.value_rowids(), tf.int64), codes.values
        given = tf.gather(self._given, codes)
        kept = given & _DROPPED == 0
        rows, codes, given = (tf.boolean_mask(x, kept) for x in (rows, codes, given))
        if self._lowers:
            codes = _with_final_sigmas(codes, rows, given)
        rows, codes = self._decomposed(rows, codes)
        if self._lowers:
            rows, codes = self._in_canonical_order(rows, codes)
            kept = tf.gather(self._flags, codes) & _ACCENT == 0
            rows, codes = tf.boolean_mask(rows, kept), tf.boolean_mask(codes, kept)
        flags = tf.gather(self._flags, codes)
        word_rows, words = _words(rows, codes, flags)
        pieces = self._wordpiece.tokenize(words)  # [W, pieces]
        by_text = _ragged.from_value_rowids(
            pieces, word_rows, nrows=tf.size(texts, out_type=tf.int64)
        )
        return by_text.merge_dims(1, 2)

    def _decomposed(self, rows: tf.Tensor, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces each character by its decomposition."""
        counts = tf.cast(tf.gather(self._counts, codes), tf.int32)
        starts = tf.gather(self._starts, codes)
        before = tf.cumsum(counts, exclusive=True)
        indices = tf.range(tf.reduce_sum(counts)) + tf.repeat(starts - before, counts)
        return tf.repeat(rows, counts), tf.gather(self._forms, indices)

    def _in_canonical_order(self, rows: tf.Tensor, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the combining characters after each letter by their classes."""
        classes = tf.cast(tf.gather(self._classes, codes), tf.int64)
        begins = (classes == 0) | _changes(rows)
        order = tf.argsort(tf.cumsum(tf.cast(begins, tf.int64)) * 256 + classes, stable=True)
        return tf.gather(rows, order), tf.gather(codes, order)


def _words(rows: tf.Tensor, codes: tf.Tensor, flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins characters to words: returns the text of each word and its string, both [W]."""
    alone = flags & _ALONE != 0
    space = flags & _SPACE != 0
    after_end = tf.concat([[True], (alone | space)[:-1]], 0)[: tf.size(codes)]
    begins = alone | after_end | _changes(rows)
    # If a word starts at a space, the space is dropped and its letters follow.
    rows, codes, begins = (tf.boolean_mask(x, ~space) for x in (rows, codes, begins))
    starts = tf.where(begins)[:, 0]
    letters = _ragged.from_row_starts(codes, starts)
    words = tf.strings.unicode_encode(letters, "UTF-8")
    # The original counts characters, the compiled code bytes.
    is_long = letters.row_lengths() > MAX_WORD_CHARS
    return tf.gather(rows, starts), tf.where(is_long, TOO_LONG, words)


def _changes(rows: tf.Tensor) -> tf.Tensor:
    """Returns whether a text begins at each character, bool [C]."""
    return tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]


def _with_final_sigmas(codes: tf.Tensor, rows: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """Lower-cases capital sigmas that end a word, by the rule of `str.lower`.

    Without ignored characters, the one before them has case and the one after them has none.
    """
    sigmas = tf.where(codes == _SIGMA)[:, 0]
    seen = tf.where(given & _IGNORED == 0)[:, 0]
    cased = tf.gather(given, seen) & _CASED != 0
    seen_rows = tf.gather(rows, seen)
    index = tf.searchsorted(seen, sigmas, out_type=tf.int64)  # of the sigma itself

    def has_case(neighbour: tf.Tensor) -> tf.Tensor:
        last = tf.size(seen, out_type=tf.int64) - 1
        nearest = tf.clip_by_value(neighbour, 0, last)
        same = tf.gather(seen_rows, nearest) == tf.gather(rows, sigmas)
        return (neighbour == nearest) & same & tf.gather(cased, nearest)

    ends = tf.boolean_mask(sigmas, has_case(index - 1) & ~has_case(index + 1))
    return tf.tensor_scatter_nd_update(codes, ends[:, None], tf.fill([tf.size(ends)], _FINAL_SIGMA))


def _wordpiece(vocab: dict[str, int]) -> Any:
    if not tensorflow_text():
        raise UserError(
            "Tokenization inside of a model needs TensorFlow Text, in the version of TensorFlow. "
            "Or export a model that takes ids: --text_input=false"
        )
    try:
        return build_wordpiece(lines_of(vocab), no_pretokenization=True)
    except RuntimeError as error:
        raise UserError(f"TensorFlow Text cannot take this vocabulary: {error}") from error


class _Tables(NamedTuple):
    given: np.ndarray  # flags before decomposition
    counts: np.ndarray  # number of characters in the decomposition
    starts: np.ndarray  # index of the first of them in `forms`
    forms: np.ndarray  # all decompositions, concatenated
    flags: np.ndarray  # flags after decomposition
    classes: np.ndarray  # canonical combining class; 0 for others


@functools.lru_cache(maxsize=2)
def _tables(lowers: bool) -> _Tables:
    """Builds the tables, which takes seconds and depends on Python's Unicode version only."""
    form = _lowered if lowers else clean_char
    forms = [form(chr(code)) for code in range(_CODES)]
    counts = np.array([len(text) for text in forms], np.int32)
    joined = "".join(forms).encode("utf-32-le", "surrogatepass")
    return _Tables(
        given=_table(_given_flags),
        counts=counts.astype(np.uint8),
        starts=(np.cumsum(counts) - counts).astype(np.int32),
        forms=np.frombuffer(joined, np.int32),
        flags=_table(_flags),
        classes=_table(unicodedata.combining),
    )


def _table(value: Callable[[str], int]) -> np.ndarray:
    return np.array([value(chr(code)) for code in range(_CODES)], np.uint8)


def _given_flags(char: str) -> int:
    # Lower-casing a sigma after the character tells whether it has case, and is ignored.
    has_case = f"{char}Σ".lower().endswith("ς")
    ignored = not has_case and f"a{char}Σ".lower().endswith("ς")
    return _DROPPED * (not clean_char(char)) | _CASED * has_case | _IGNORED * ignored


def _flags(char: str) -> int:
    accent = unicodedata.category(char) == "Mn"
    return _ACCENT * accent | _SPACE * char.isspace() | _ALONE * is_punctuation(char)


def _lowered(char: str) -> str:
    return unicodedata.normalize("NFD", clean_char(char).lower())
