"""A tokenizer made of TensorFlow operations, for graphs that take texts.

It returns the same ids as `FullTokenizer`. Characters are looked up in tables that Python computes
in advance; only the lower case of sigma and the order of combining marks also depend on neighbours.

Shapes: B texts, C characters of all texts, W words of all texts, T tokens of a text.
"""

import functools
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.tokenization import FullTokenizer, clean_char, is_punctuation, special_pattern

# Type checkers do not see the class methods of RaggedTensor.
_ragged: Any = tf.RaggedTensor

_NUM_CODE_POINTS = 0x110000
_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2
# Flags of input characters; the Unicode standard defines "cased" and "case-ignorable".
_DROPPED, _CASED, _CASE_IGNORABLE = 1, 2, 4
# Flags of decomposed characters. Spaces separate words; punctuation is a word by itself.
_ACCENT, _SPACE, _PUNCTUATION = 1, 2, 4


class GraphTokenizer(tf.Module):
    """Tokenizes texts in a graph, with vocabulary and settings of a `FullTokenizer`.

    It only uses operations of TensorFlow itself, so that any program can run the graph. Raises a
    KeyError if the vocabulary has no `[UNK]`.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__()
        basic = tokenizer.basic_tokenizer
        self._do_lower_case, self._strip_accents = basic.do_lower_case, basic.strip_accents
        self._wordpiece = _WordPiece(tokenizer)
        self._special_forms = basic.special_forms
        forms = [pair for part in basic.special_forms for pair in part.items()]
        self._special_tokens = [b"\xfe" + form.encode() for form, _ in forms]
        self._special_ids = [tokenizer.vocab[token] for _, token in forms]
        settings = self._do_lower_case, self._strip_accents, basic.pretokenized
        tables = map(tf.constant, _build_tables(*settings))
        self._input_flags, self._decomposed_flags, self._classes, *decompositions = tables
        self._counts, self._starts, self._decompositions = decompositions

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of UTF-8 strings [B], ragged int32 [B, T]; ignores invalid bytes."""
        # On a GPU, each step of the loops would wait for it.
        with tf.device("CPU:0"):
            return self._tokenize_parts(texts) if self._special_tokens else self._tokenize(texts)

    def _tokenize_parts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes what is between special tokens, and joins the parts of each text."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        exact, folded = self._special_forms
        parts = tf.strings.split(_mark(texts, exact), b"\xff")
        strings = parts.flat_values  # [P]: special tokens, and what is between them
        if folded:
            is_found = tf.strings.substr(strings, 0, 1) == b"\xfe"
            strings = tf.where(is_found, strings, _mark(self._fold(strings), folded))
            parts = parts.with_flat_values(tf.strings.split(strings, b"\xff")).merge_dims(1, 2)
            strings = parts.flat_values
        is_token = strings[:, None] == tf.constant(self._special_tokens)  # [P, tokens]
        others = tf.where(tf.reduce_any(is_token, 1), tf.constant(""), strings)
        ids = tf.zeros_like(is_token, tf.int32) + tf.constant(self._special_ids)
        special_ids = tf.ragged.boolean_mask(ids, is_token)  # [P, 0 or 1]
        return parts.with_flat_values(
            tf.concat([self._tokenize(others), special_ids], axis=1)
        ).merge_dims(1, 2)

    def _fold(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the texts as tokens with `(?i)` see them."""
        rows, codes = self._normalize(texts)
        nrows = tf.size(texts, out_type=tf.int64)
        return tf.strings.unicode_encode(_ragged.from_value_rowids(codes, rows, nrows), "UTF-8")

    def _normalize(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the index of its text, and the code point, of each character: both [C]."""
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")
        rows, codes = tf.cast(codes.value_rowids(), tf.int64), codes.values
        flags = tf.gather(self._input_flags, codes)
        rows, codes, flags = _keep(flags & _DROPPED == 0, rows, codes, flags)
        if self._do_lower_case:
            codes = _lower_final_sigmas(codes, rows, flags)
        rows, codes = self._decompose(rows, codes)
        if self._strip_accents:
            rows, codes = self._sort_marks(rows, codes)
            is_kept = tf.gather(self._decomposed_flags, codes) & _ACCENT == 0
            rows, codes = _keep(is_kept, rows, codes)
        return rows, codes

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        rows, codes = self._normalize(texts)
        flags = tf.gather(self._decomposed_flags, codes)
        rows, codes, is_start = _find_words(rows, codes, flags)
        rows, ids = self._wordpiece(rows, codes, is_start)
        return _ragged.from_value_rowids(ids, rows, nrows=tf.size(texts, out_type=tf.int64))

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


def _mark(texts: tf.Tensor, forms: Collection[str]) -> tf.Tensor:
    """Puts bytes that no text has around special tokens."""
    if not forms:
        return texts
    return tf.strings.regex_replace(texts, special_pattern(forms), b"\xff\xfe\\0\xff")


class _WordPiece(tf.Module):
    """Splits words as `WordpieceTokenizer` does, with a trie of the vocabulary's pieces.

    The nodes of the trie are the prefixes of all pieces, sorted by length, so that node 0 is the
    empty string. An edge adds a character to a prefix: edge E leads to node E + 1. All words are
    split at once, in as many steps as the longest piece has characters.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        super().__init__()
        vocab, wordpiece = tokenizer.vocab, tokenizer.wordpiece_tokenizer
        self._unknown_id = vocab[wordpiece.unk_token]
        self._max_word_chars = wordpiece.max_input_chars_per_word
        prefixes = {text[:end] for text in [*vocab, "##"] for end in range(len(text) + 1)}
        nodes = {text: n for n, text in enumerate(sorted(prefixes, key=lambda p: (len(p), p)))}
        edges = [nodes[text[:-1]] * _NUM_CODE_POINTS + ord(text[-1]) for text in nodes if text]
        self._edges = tf.constant(edges, tf.int64)  # ascending: start of an edge, and character
        self._ids = tf.constant([vocab.get(text, -1) for text in nodes])  # of each node
        self._inner_node = nodes["##"]  # where pieces start that are not the first of a word

    def __call__(
        self, rows: tf.Tensor, codes: tf.Tensor, is_start: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits the words of `_find_words`; returns each piece's index of its text, and id."""
        starts = tf.where(is_start)[:, 0]  # [W]
        ends = tf.concat([starts[1:], [tf.size(codes, tf.int64)]], 0)[: tf.size(starts)]
        words = tf.cumsum(tf.cast(is_start, tf.int32)) - 1  # index of each character's word, [C]
        word_ends = tf.gather(ends, words)  # [C]
        ids, piece_ends = self._match(tf.cast(codes, tf.int64), is_start, word_ends)
        is_long = ends - starts > self._max_word_chars
        is_piece = _follow(tf.boolean_mask(starts, tf.logical_not(is_long)), piece_ends, word_ends)
        fails = is_piece & (ids < 0) | tf.gather(is_long, words)
        is_unknown = tf.gather(tf.math.segment_max(tf.cast(fails, tf.int32), words) > 0, words)
        is_kept = tf.where(is_unknown, is_start, is_piece)
        return _keep(is_kept, rows, tf.where(is_unknown, self._unknown_id, ids))

    def _match(
        self, codes: tf.Tensor, is_start: tf.Tensor, word_ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the id and the end of the longest piece that starts at each character, both [C].

        Where no piece starts, the id is -1, and the end is that of the word.
        """
        last_edge = tf.size(self._edges, tf.int64) - 1

        # Reads one more character of all candidates: where they start, and their node.
        def step(length: Any, starts: Any, nodes: Any, ids: Any, ends: Any) -> tuple[Any, ...]:
            keys = nodes * _NUM_CODE_POINTS + tf.gather(codes, starts + length)
            edges = tf.minimum(tf.searchsorted(self._edges, keys, out_type=tf.int64), last_edge)
            starts, nodes = _keep(tf.gather(self._edges, edges) == keys, starts, edges + 1)
            length += 1
            node_ids = tf.gather(self._ids, nodes)
            found, found_ids = _keep(node_ids >= 0, starts, node_ids)
            ids = tf.tensor_scatter_nd_update(ids, found[:, None], found_ids)
            ends = tf.tensor_scatter_nd_update(ends, found[:, None], found + length)
            is_inside = starts + length < tf.gather(word_ends, starts)
            return length, *_keep(is_inside, starts, nodes), ids, ends

        starts = tf.range(tf.size(codes, tf.int64))
        nodes = tf.where(is_start, tf.constant(0, tf.int64), self._inner_node)
        ids = tf.fill([tf.size(codes)], -1)
        return _while_any(1, step, [tf.constant(0, tf.int64), starts, nodes, ids, word_ends])[3:]


def _follow(starts: tf.Tensor, piece_ends: tf.Tensor, word_ends: tf.Tensor) -> tf.Tensor:
    """Returns whether each character starts a piece, bool [C], from the starts of the words."""

    def step(starts: Any, is_piece: Any) -> tuple[Any, Any]:
        found = tf.fill([tf.size(starts)], True)
        is_piece = tf.tensor_scatter_nd_update(is_piece, starts[:, None], found)
        ends = tf.gather(piece_ends, starts)
        return tf.boolean_mask(ends, ends < tf.gather(word_ends, starts)), is_piece

    return _while_any(0, step, [starts, tf.fill([tf.size(piece_ends)], False)])[1]


def _while_any(index: int, step: Callable[..., Any], values: list[Any]) -> Any:
    """Applies a step to values until the one with this index is empty; sizes may change."""
    shapes = [tf.TensorShape([None] * value.shape.rank) for value in values]
    return tf.while_loop(lambda *v: tf.size(v[index]) > 0, step, values, shapes)


def _keep(is_kept: tf.Tensor, *values: tf.Tensor) -> Any:
    indices = tf.where(is_kept)[:, 0]
    return [tf.gather(value, indices) for value in values]


def _find_words(rows: tf.Tensor, codes: tf.Tensor, flags: tf.Tensor) -> Any:
    """Drops spaces; returns rows and codes, and whether each character starts a word, all [C]."""
    is_punctuation = flags & _PUNCTUATION != 0
    is_space = flags & _SPACE != 0
    ends_word = is_punctuation | is_space
    follows_end = tf.concat([[True], ends_word[:-1]], 0)[: tf.size(codes)]
    is_start = is_punctuation | follows_end | _starts_text(rows)
    # Dropping spaces loses no start of a word: the character after a space is a start, too.
    return _keep(tf.logical_not(is_space), rows, codes, is_start)


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
