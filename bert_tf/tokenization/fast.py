"""Tokenizes many texts at once: the reference's ids, at the speed of compiled code.

`tokenization.FullTokenizer` is the reference. NumPy normalizes the texts with a table of
characters, and TensorFlow Text's `FastWordpieceTokenizer` splits them into word pieces. Texts that
these would tokenize differently go to the reference; without TensorFlow Text, all do.
"""

import functools
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.tokenization.character_table import BREAKS, ODD, CharacterTable
from bert_tf.tokenization.fast_wordpiece import MAX_WORD_CHARS, UNKNOWN, fast_wordpiece, lines_of
from bert_tf.tokenization.offsets import tokenize_with_offsets
from bert_tf.tokenization.ragged_ids import RaggedIds
from bert_tf.tokenization.reference import FullTokenizer, convert_to_unicode

_logger = logging.getLogger(__name__)

# For the warning of unknown tokens.
_SAMPLE, _FEWEST_UNKNOWN, _UNKNOWN_SHARE, _WORDS_SHOWN = 2000, 5, 0.05, 5

# A batch has about this many characters, so that its arrays fit into the CPU's caches.
_MAX_BATCH_CHARS = 1 << 19
# Fixed cost of a text, in characters.
_CHARS_PER_TEXT = 100

# Characters that the reference tokenizes while the compiled tokenizer is built; spans take longer.
_COMPILE_CHARS = 1_500_000
_SPANS_COST = 10


@dataclass(frozen=True)
class _Cleaned:
    """Normalized texts: B texts, M characters, N characters of the original texts."""

    strings: list[str]  # "" for odd texts
    is_odd: np.ndarray  # bool [B]; whether only the reference can tokenize a text
    codes: np.ndarray  # uint32 [M]; code points of all texts
    counts: np.ndarray  # uint8 [N]; how many of them each original character became
    borders: np.ndarray  # int64 [B + 1]; start and end of each original text in `counts`


class BatchTokenizer:
    """Converts many texts to ids exactly as a `FullTokenizer` does.

    The compiled tokenizer is built once the reference has worked for about as long as building
    takes, so never for a few texts. TensorFlow is not imported earlier: it must not compute
    anything before a script has chosen its devices. Several threads may share a tokenizer.

    Args:
        tokenizer: the reference; its vocabulary must not change afterwards.

    Attributes:
        texts: number of texts tokenized.
        handed_back: how many of them the reference tokenized.
        warned: files that a warning about unknown tokens was logged for.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        if not isinstance(tokenizer, FullTokenizer):
            raise TypeError(f"tokenizer must be a FullTokenizer. Received: {tokenizer!r:.100}")
        self.reference = tokenizer
        self.texts = self.handed_back = 0
        self.warned: set[str] = set()
        # Guards the counters, the compiled tokenizer and the character table.
        self._lock = threading.Lock()
        self._chars = 0

    def encode(self, texts: Sequence[str | bytes], *, with_spans: bool = False) -> RaggedIds:
        """Returns the ids of each text's tokens, without special tokens.

        Args:
            texts: any texts.
            with_spans: whether to return the characters that each token comes from. Takes about
                one and a half times as long.

        Raises:
            TypeError: `texts` is a single text.
            ValueError: a text is neither str nor bytes.
            KeyError: the vocabulary has no `[UNK]`, and a text needs it.
        """
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a list of texts. Received: {texts!r:.100}")
        # A copy: the caller may change the list in the meantime.
        strings: list[Any] = list(texts)
        if not strings:
            return RaggedIds.from_lists([], [] if with_spans else None)
        with self._lock:
            self.texts += len(strings)
        return RaggedIds.concatenate(
            [self._encode_batch(batch, with_spans) for batch in _batches(strings)]
        )

    def warn_of_unknown(
        self, name: str, examples: Sequence[Sequence[str]], is_pretokenized: bool = False
    ) -> None:
        """Warns once about a file if more than 5 % of the tokens in a sample are `[UNK]`.

        `examples` are the texts of each example, or its words if `is_pretokenized`.
        """
        sample = [" ".join(example) for example in examples[:: max(len(examples) // _SAMPLE, 1)]]
        split = str.split if is_pretokenized else self.reference.basic_tokenizer.tokenize
        words = Counter(word for text in sample for word in split(text))
        pieces = {word: self.reference.wordpiece_tokenizer.cut(word) for word in words}
        unknown = Counter({word: words[word] for word in words if pieces[word] == [UNKNOWN]})
        count, total = unknown.total(), sum(len(pieces[word]) * words[word] for word in words)
        if count < max(_FEWEST_UNKNOWN, _UNKNOWN_SHARE * total) or name in self.warned:
            return
        self.warned.add(name)
        named = ", ".join(f"{word:.30}" for word, _ in unknown.most_common(_WORDS_SHOWN))
        share = f"{100 * count / total:.1f} % of the tokens ({count} of {total})"
        advice = "Check the vocabulary, --do_lower_case and the encoding of the file"
        _logger.warning("%s: %s are [UNK], most often for %s. %s", name, share, named, advice)

    @functools.cached_property
    def _fast(self) -> Any:
        """The compiled tokenizer for normalized texts; None if there is none."""
        vocab = self.reference.vocab
        return fast_wordpiece(lines_of(vocab)) if UNKNOWN in vocab else None

    @functools.cached_property
    def _table(self) -> CharacterTable:
        return CharacterTable(self.reference.basic_tokenizer)

    def _encode_batch(self, texts: list[str], with_spans: bool) -> RaggedIds:
        with self._lock:
            self._chars += sum(map(len, texts)) * (_SPANS_COST if with_spans else 1)
            is_compiled = self._chars >= _COMPILE_CHARS and self._fast is not None
        if not is_compiled:
            return self._by_reference(texts, with_spans)
        cleaned, spans = self._clean(texts), None
        if with_spans:
            tokens, *offsets = self._fast.tokenize_with_offsets(cleaned.strings)
            rows = tokens.value_rowids().numpy()
            spans = _spans(cleaned, rows, *(ragged.values.numpy() for ragged in offsets))
        else:
            tokens = self._fast.tokenize(cleaned.strings)
        ids = RaggedIds(tokens.values.numpy(), tokens.row_splits.numpy(), spans)
        odd = np.flatnonzero(cleaned.is_odd)
        if not len(odd):
            return ids
        others = self._by_reference([texts[row] for row in odd.tolist()], with_spans)
        order = np.arange(len(texts))
        order[odd] = len(texts) + np.arange(len(odd))
        return RaggedIds.concatenate([ids, others]).take(order)

    def _by_reference(self, texts: Sequence[str], with_spans: bool) -> RaggedIds:
        with self._lock:
            self.handed_back += len(texts)
        reference = self.reference
        if with_spans:
            rows = [tokenize_with_offsets(reference, text) for text in texts]
        else:
            rows = [(reference.tokenize(text), []) for text in texts]
        ids = [reference.convert_tokens_to_ids(tokens) for tokens, _ in rows]
        return RaggedIds.from_lists(ids, [spans for _, spans in rows] if with_spans else None)

    def _clean(self, texts: list[str]) -> _Cleaned:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        with self._lock:
            kinds = self._table.kinds(codes)
        borders = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        is_odd = np.zeros(len(texts), bool)
        is_odd[np.searchsorted(borders, np.flatnonzero(kinds & ODD), "right") - 1] = True
        codes, counts = self._table.normalize(codes)
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        text = codes.tobytes().decode("utf-32-le")
        strings = [text[a:b] for a, b in itertools.pairwise(ends[borders].tolist())]
        if max(map(len, strings)) > MAX_WORD_CHARS:
            at = np.union1d(np.flatnonzero(kinds & BREAKS), borders[:-1])
            long = np.diff(np.concatenate([ends[at], ends[-1:]])) > MAX_WORD_CHARS
            is_odd[np.searchsorted(borders, at[long], "right") - 1] = True
        for row in np.flatnonzero(is_odd).tolist():
            strings[row] = ""
        return _Cleaned(strings, is_odd, codes, counts, borders)


def encode_words(
    words: Sequence[str], tokenizer: BatchTokenizer, unknown_id: int | None = None
) -> RaggedIds:
    """Tokenizes each distinct word once; `unknown_id` replaces a word without tokens."""
    numbers: dict[str, int] = {}
    rows = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)
    tokens = tokenizer.encode(list(numbers))
    if unknown_id is not None and not tokens.lengths.all():
        lists = [tokens[row].tolist() or [unknown_id] for row in range(len(tokens))]
        tokens = RaggedIds.from_lists(lists)
    return tokens.take(rows)


def _spans(cleaned: _Cleaned, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Converts byte ranges [N] in the UTF-8 of normalized texts to character spans, int32 [N, 2].

    `rows` [N] are the texts of the tokens.
    """
    # For each normalized character: the end of its bytes, and the character that it comes from.
    codes = cleaned.codes
    sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    last_bytes = np.cumsum(sizes)
    sources = np.repeat(np.arange(len(cleaned.counts)), cleaned.counts)
    firsts = np.concatenate([[0], np.cumsum(cleaned.counts, dtype=np.int64)])[cleaned.borders[rows]]
    first_bytes = np.concatenate([[0], last_bytes])[firsts]
    first = sources[np.searchsorted(last_bytes, first_bytes + starts, "right")]
    last = sources[np.searchsorted(last_bytes, first_bytes + ends - 1, "right")]
    spans = np.stack([first, last + 1], axis=1) - cleaned.borders[rows, None]
    return spans.astype(np.int32)


def _batches(texts: list[Any]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in map(convert_to_unicode, texts):
        batch.append(text)
        size += len(text) + _CHARS_PER_TEXT
        if size >= _MAX_BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
