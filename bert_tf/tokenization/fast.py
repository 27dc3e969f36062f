"""Tokenizes many texts at once, with the same ids as the reference, `FullTokenizer`, but faster.

NumPy normalizes the texts with a table of characters, and TensorFlow Text's compiled
`FastWordpieceTokenizer` splits them into word pieces. Texts for which that would give different ids
are tokenized by the reference; without TensorFlow Text, all texts are.
"""

import functools
import itertools
import operator
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base.errors import counted, excerpt
from bert_tf.tokenization import BasicTokenizer, FullTokenizer, convert_to_unicode
from bert_tf.tokenization.fast_wordpiece import MAX_WORD_CHARS, UNKNOWN, try_build, vocab_lines
from bert_tf.tokenization.ragged_ids import RaggedIds

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


# A batch has about this many characters, so that its arrays fit into the CPU's caches.
_BATCH_CHARS = 1 << 19
# The overhead of a text costs about as much as this many characters.
_CHARS_PER_TEXT = 100

# The reference tokenizes about this many characters in the time it takes to build the compiled one.
_COMPILE_CHARS = 1_500_000
# The reference is slower by this factor when it also returns spans.
_SPANS_SLOWDOWN = 10


@dataclass(frozen=True)
class _NormalizedTexts:
    """B texts, which have M characters after normalization and had N characters before."""

    strings: list[str]  # normalized texts; "" for texts that need the reference
    needs_reference: np.ndarray  # bool [B]; whether only the reference tokenizes a text correctly
    codes: np.ndarray  # uint32 [M]; code points of all normalized texts
    offsets: np.ndarray  # int64 [N + 1]; start and end, in `codes`, of each original character
    text_splits: np.ndarray  # int64 [B + 1]; start and end of each text in original characters


class BatchTokenizer:
    """Converts many texts to ids exactly as a `FullTokenizer` does.

    The compiled tokenizer is built only after the reference has run for about as long as building
    takes, so a few texts never need it. TensorFlow is not imported before that: it must not compute
    anything until a script has chosen its devices. Several threads may share a tokenizer.

    Args:
        tokenizer: the reference; its vocabulary must not change afterwards.

    Attributes:
        num_texts: number of texts tokenized.
        num_reference_texts: number of texts that the reference tokenized.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        if not isinstance(tokenizer, FullTokenizer):
            raise TypeError(f"tokenizer must be a FullTokenizer. Received: {tokenizer!r:.100}")
        self.reference = tokenizer
        self.num_texts = self.num_reference_texts = 0
        # Guards the counters, the compiled tokenizer and the character table.
        self._lock = threading.Lock()
        self._num_chars = 0

    def encode(self, texts: Sequence[str | bytes], *, with_spans: bool = False) -> RaggedIds:
        """Returns the ids of each text's tokens, without special tokens.

        Args:
            texts: list of texts; bytes are decoded as UTF-8.
            with_spans: whether to also return the character span of each token, which takes about
                one and a half times as long.

        Raises:
            TypeError: `texts` is a single text.
            ValueError: a text is neither str nor bytes.
            KeyError: the vocabulary has no `[UNK]`, and a text needs it.
        """
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a list of texts. Received: {texts!r:.100}")
        # A copy, because the caller may change the list while it is tokenized.
        strings = list(map(convert_to_unicode, texts))
        if not strings:
            return RaggedIds.from_lists([], [] if with_spans else None)
        with self._lock:
            self.num_texts += len(strings)
        if self.reference.basic_tokenizer.special_tokens:
            return self._encode_parts(strings, with_spans)
        return self._encode(strings, with_spans)

    def _encode(self, texts: Sequence[str], with_spans: bool) -> RaggedIds:
        return RaggedIds.concatenate(
            [self._encode_batch(batch, with_spans) for batch in _split_into_batches(texts)]
        )

    def _encode_parts(self, texts: Sequence[str], with_spans: bool) -> RaggedIds:
        """Encodes what is between special tokens, and joins the parts of each text."""
        parts_of_texts = [[*self.reference.basic_tokenizer.split(text)] for text in texts]
        counts = np.array([len(parts) for parts in parts_of_texts])
        parts = [part for parts in parts_of_texts for part in parts]
        others = self._encode([part for part, token in parts if not token], with_spans)
        ids = [[self.reference.vocab[token]] for _, token in parts if token]
        spans = [[(0, len(part))] for part, token in parts if token] if with_spans else None
        is_token = np.array([bool(token) for _, token in parts])
        order = np.argsort(np.concatenate([np.flatnonzero(~is_token), np.flatnonzero(is_token)]))
        joined = RaggedIds.concatenate([others, RaggedIds.from_lists(ids, spans)]).take(order)
        first_parts = np.concatenate([[0], np.cumsum(counts)])
        if with_spans:
            starts = np.concatenate([[0], np.cumsum([len(part) for part, _ in parts])])
            shift = starts[:-1] - np.repeat(starts[first_parts[:-1]], counts)
            joined.spans[:] += np.repeat(shift, joined.lengths)[:, None].astype(np.int32)
        return RaggedIds(joined.ids, joined.row_splits[first_parts], joined.spans)

    def check_texts(
        self, source: str, examples: Sequence[Sequence[str]], are_words: bool = False
    ) -> Iterator[str]:
        """Yields signs that the texts of a file are garbled or do not fit the vocabulary."""
        return lint.at(source, find_problems(self.reference, examples, are_words))

    @functools.cached_property
    def _compiled(self) -> Any:
        """The compiled tokenizer, which takes normalized texts; None if it cannot be built."""
        vocab = self.reference.vocab
        return try_build(vocab_lines(vocab)) if UNKNOWN in vocab else None

    @functools.cached_property
    def _table(self) -> CharacterTable:
        return CharacterTable(self.reference.basic_tokenizer)

    def _encode_batch(self, texts: list[str], with_spans: bool) -> RaggedIds:
        with self._lock:
            self._num_chars += sum(map(len, texts)) * (_SPANS_SLOWDOWN if with_spans else 1)
            use_compiled = self._num_chars >= _COMPILE_CHARS and self._compiled is not None
        if not use_compiled:
            return self._encode_with_reference(texts, with_spans)
        compiled: Any = self._compiled
        normalized, spans = self._normalize(texts), None
        if with_spans:
            tokens, *byte_ranges = compiled.tokenize_with_offsets(normalized.strings)
            rows = tokens.value_rowids().numpy()
            starts, ends = (ragged.values.numpy() for ragged in byte_ranges)
            spans = _to_char_spans(normalized, rows, starts, ends)
        else:
            tokens = compiled.tokenize(normalized.strings)
        ids = RaggedIds(tokens.values.numpy(), tokens.row_splits.numpy(), spans)
        reference_rows = np.flatnonzero(normalized.needs_reference)
        if not len(reference_rows):
            return ids
        reference_texts = [texts[row] for row in reference_rows.tolist()]
        reference_ids = self._encode_with_reference(reference_texts, with_spans)
        order = np.arange(len(texts))
        order[reference_rows] = len(texts) + np.arange(len(reference_rows))
        return RaggedIds.concatenate([ids, reference_ids]).take(order)

    def _encode_with_reference(self, texts: Sequence[str], with_spans: bool) -> RaggedIds:
        with self._lock:
            self.num_reference_texts += len(texts)
        reference = self.reference
        if with_spans:
            rows = [tokenize_with_offsets(reference, text) for text in texts]
        else:
            rows = [(reference.tokenize(text), []) for text in texts]
        ids = [reference.convert_tokens_to_ids(tokens) for tokens, _ in rows]
        return RaggedIds.from_lists(ids, [spans for _, spans in rows] if with_spans else None)

    def _normalize(self, texts: list[str]) -> _NormalizedTexts:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        with self._lock:
            flags = self._table.flags(codes)
        splits = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        needs_reference = np.zeros(len(texts), bool)
        indices = np.flatnonzero(flags & NEEDS_REFERENCE)
        needs_reference[np.searchsorted(splits, indices, "right") - 1] = True
        codes, counts = self._table.normalize(codes)
        # Start of each original character's code points in `codes`, followed by their total number.
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        joined = codes.tobytes().decode("utf-32-le")
        strings = [joined[start:end] for start, end in itertools.pairwise(offsets[splits].tolist())]
        if max(map(len, strings)) > MAX_WORD_CHARS:
            # Use the reference for texts in which a word may be too long: in those with more than
            # MAX_WORD_CHARS characters between two separators, or a separator and an end.
            separates = np.append(flags & SEPARATES, 0)
            separates[splits[:-1]] = SEPARATES
            starts = np.flatnonzero(separates)
            is_long = np.diff(np.concatenate([offsets[starts], offsets[-1:]])) > MAX_WORD_CHARS
            needs_reference[np.searchsorted(splits, starts[is_long], "right") - 1] = True
        for row in np.flatnonzero(needs_reference).tolist():
            strings[row] = ""
        return _NormalizedTexts(strings, needs_reference, codes, offsets, splits)


def encode_words(
    words: Sequence[str], tokenizer: BatchTokenizer, unknown_id: int | None = None
) -> RaggedIds:
    """Returns the ids of each word; tokenizes a word only once if it occurs several times.

    A word without tokens gets the id `unknown_id`, unless that is None.
    """
    distinct: dict[str, int] = {}  # word -> index of its ids
    rows = np.array([distinct.setdefault(word, len(distinct)) for word in words], np.int64)
    ids = tokenizer.encode(list(distinct))
    if unknown_id is not None and not ids.lengths.all():
        ids = RaggedIds.from_lists([ids[row].tolist() or [unknown_id] for row in range(len(ids))])
    return ids.take(rows)


def _to_char_spans(
    texts: _NormalizedTexts, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Converts UTF-8 byte ranges in normalized texts to character spans in the original texts.

    `rows`, `starts` and `ends` [T] are the index of the text, and the range, of each token. The
    result is int32 [T, 2].
    """
    sizes = 1 + (texts.codes >= 0x80) + (texts.codes >= 0x800) + (texts.codes >= 0x10000)
    byte_ends = np.cumsum(sizes)  # [M]
    # [M]: for each normalized character, the index of the original character it comes from.
    sources = np.repeat(np.arange(len(texts.offsets) - 1), np.diff(texts.offsets))
    text_bytes = np.concatenate([[0], byte_ends])[texts.offsets[texts.text_splits[rows]]]
    first_chars = sources[np.searchsorted(byte_ends, text_bytes + starts, "right")]
    last_chars = sources[np.searchsorted(byte_ends, text_bytes + ends - 1, "right")]
    spans = np.stack([first_chars, last_chars + 1], axis=1) - texts.text_splits[rows, None]
    return spans.astype(np.int32)


def _split_into_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    sizes = itertools.accumulate(len(text) + _CHARS_PER_TEXT for text in texts)
    numbers = (size // _BATCH_CHARS for size in sizes)
    pairs = zip(numbers, texts, strict=True)
    for _, batch in itertools.groupby(pairs, key=operator.itemgetter(0)):
        yield [text for _, text in batch]


def tokenize_with_offsets(
    tokenizer: FullTokenizer, text: str | bytes
) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the tokens of `tokenizer.tokenize(text)` and their (start, end) spans in `text`.

    Characters that tokenization drops (control characters; accents if it lower-cases) are included
    inside a span, but not at its edges. The span of `[UNK]` is the whole word.
    """
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    offset = 0
    for part, token in tokenizer.basic_tokenizer.split(convert_to_unicode(text)):
        found = ([token], [(0, len(part))]) if token else _tokenize_part(tokenizer, part)
        tokens += found[0]
        spans += [(start + offset, end + offset) for start, end in found[1]]
        offset += len(part)
    return tokens, spans


def _tokenize_part(tokenizer: FullTokenizer, text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Tokenizes a text without special tokens, see `tokenize_with_offsets`."""
    source_spans = _find_source_spans(tokenizer.basic_tokenizer, text)  # of normalized characters
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    for word in re.finditer(r"\S+", tokenizer.basic_tokenizer.normalize(text)):
        pieces = tokenizer.wordpiece_tokenizer.tokenize(word.group())
        start = word.start()
        for index, piece in enumerate(pieces):
            if piece == tokenizer.wordpiece_tokenizer.unk_token and len(pieces) == 1:
                end = word.end()
            else:
                end = start + len(piece) - (2 if index else 0)
            spans.append((source_spans[start][0], source_spans[end - 1][1]))
            start = end
        tokens += pieces
    return tokens, spans


def _find_source_spans(basic: BasicTokenizer, text: str) -> list[tuple[int, int]]:
    """Returns the span in `text` that each character of the normalized text comes from.

    If normalization reorders combining marks, they share a span with the character before them.
    """
    spans: list[tuple[int, int]] = []
    normalize = functools.cache(basic.normalize)
    joins_previous = functools.cache(functools.partial(_joins_previous, basic))
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and joins_previous(text[end]):
            continue
        run = text[start:end]  # a character and its combining marks
        normalized_chars = list(map(normalize, run))
        normalized_run = normalize(run)
        if "".join(normalized_chars) == normalized_run:
            for index, normalized in enumerate(normalized_chars, start):
                spans += [(index, index + 1)] * len(normalized)
        else:
            spans += [(start, end)] * len(normalized_run)
        start = end
    return spans


def _joins_previous(basic: BasicTokenizer, char: str) -> bool:
    # Combining marks join, and so do dropped characters, as marks on both sides may be reordered.
    decomposed = unicodedata.normalize("NFD", char.lower()) if basic.strip_accents else char
    return not basic.normalize(char) or unicodedata.combining(decomposed[0]) > 0


# Thresholds of unknown tokens, and unknown words to list.
_MIN_UNKNOWN, _MIN_UNKNOWN_SHARE, _MAX_LISTED_WORDS = 5, 0.05, 5


def find_problems(
    tokenizer: FullTokenizer, examples: Sequence[Sequence[str]], are_words: bool = False
) -> Iterator[str]:
    """Yields a sentence for each problem in a sample of the examples, lists of texts or words."""
    examples, basic = lint.sample(examples), tokenizer.basic_tokenizer
    if are_words:
        words = [word for example in examples for word in example]
        yield from lint.values("word", words)
        yield from lint.few_distinct("word", lint.sample(words))
    # Special tokens are no words.
    rows = [
        [" ".join(part for part, token in basic.split(text) if not token) for text in example]
        for example in examples
    ]
    texts = [" ".join(row) for row in rows]
    if not are_words:
        yield from lint.values("text", [row[0] for row in rows if row])
        yield from lint.values("other text", [text for row in rows for text in row[1:]])
        yield from lint.few_distinct("text", texts)
    words_of = {text: basic.tokenize(text) for text in texts}
    if found := [text for text in texts if text.strip() and not words_of[text]]:
        share = counted(len(found), "text", "have no word pieces", of=len(texts))
        yield f"{share}, such as {excerpt(found[0])}"
    counts = Counter(word for text in texts for word in words_of[text])
    pieces = {word: tokenizer.wordpiece_tokenizer.split_word(word) for word in counts}
    unknown = Counter({word: counts[word] for word in counts if pieces[word] == [UNKNOWN]})
    count, total = unknown.total(), sum(len(pieces[word]) * counts[word] for word in counts)
    if count >= max(_MIN_UNKNOWN, _MIN_UNKNOWN_SHARE * total):
        listed = ", ".join(f"{word:.30}" for word, _ in unknown.most_common(_MAX_LISTED_WORDS))
        share = f"{100 * count / total:.1f}% of the tokens ({count} of {total})"
        advice = "Check the vocabulary, --do_lower_case and the file's encoding"
        yield f"{share} are [UNK]; most frequent words: {listed}. {advice}"
