"""Ids of the tokens of many texts at once: the reference's ids, at the speed of compiled code.

`tokenization.FullTokenizer` is the reference. Texts of an `Alphabet`, which is most of the English,
go to a `WordTable`. Others are cleaned by NumPy and cut, as the words that are new to the table, by
TensorFlow Text's `FastWordpieceTokenizer` (Song et al. 2021, "Fast WordPiece Tokenization"). A
text with something that these would not do in the same way is found and handed to the reference.
Where TensorFlow Text is not installed, all texts are.
"""

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.alphabet import Alphabet
from bert_tf.character_table import BREAKS, CHANGES, ODD, CharacterTable
from bert_tf.token_ids import TokenIds
from bert_tf.token_offsets import tokenize_with_offsets
from bert_tf.tokenization import FullTokenizer, convert_to_unicode, is_control, is_punctuation
from bert_tf.word_table import WordTable

_logger = logging.getLogger(__name__)

# Characters and texts that are worked on together: what they need fits into the caches.
_TEXTS_TOGETHER = 4096
_CHARS_TOGETHER = 1 << 19

# `FullTokenizer` has no others.
_UNKNOWN = "[UNK]"
_LONGEST_WORD = 200
# 200 characters have no more.
_LONGEST_BYTES = 4 * _LONGEST_WORD


@dataclass(frozen=True)
class _Cleaned:
    """Normalized texts.

    Attributes:
        strings: the texts.
        is_odd: bool [B]; these the reference has to do.
        codes: uint32 [M]; the characters of all texts, one text after the other.
        counts: uint8 [N]; how many of them each character of the given texts gave.
        borders: int64 [B + 1]; where the given texts begin and end in `counts`.
    """

    strings: list[Any]
    is_odd: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    borders: np.ndarray


class BatchTokenizer:
    """Turns texts into ids as a `FullTokenizer` does, many at once.

    TensorFlow is not imported before there is a text: it must not compute anything before a
    script has chosen its devices.

    Args:
        tokenizer: the reference; its vocabulary must not change any more.

    Attributes:
        texts: how many were turned into ids.
        handed_back: how many of them by the reference.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        self.reference = tokenizer
        self.texts = self.handed_back = 0
        # Of all that changes.
        self._lock = threading.Lock()
        # Those that no thread uses now.
        self._word_tables: list[WordTable] = []

    def encode(self, texts: Sequence[str | bytes], *, with_spans: bool = False) -> TokenIds:
        """Ids of the tokens of each text, without special tokens.

        Args:
            texts: any texts.
            with_spans: whether to say which characters each token comes from; takes one and a half
                times the time, in English seven times.

        Raises:
            ValueError: a text is neither str nor bytes.
            KeyError: the vocabulary has no `[UNK]`, and a text needs it.
        """
        strings: list[Any] = list(texts)
        try:
            plain = np.fromiter(map(str.isascii, strings), bool, len(strings))
        except TypeError:  # Not all are str.
            return self.encode([*map(convert_to_unicode, strings)], with_spans=with_spans)
        if not strings:
            return TokenIds.from_lists([], [] if with_spans else None)
        with self._lock:
            self.texts += len(strings)
            compiled = self._fast is not None
        if not compiled:
            return self._by_reference(strings, with_spans)
        if with_spans:
            return _in_portions(self._encode_with_spans, strings)
        simple, others = self._simplify(strings, np.flatnonzero(~plain).tolist())
        if len(others) == len(strings):
            return _in_portions(self._encode_any, strings)
        found = _in_portions(self._encode_simple, simple)
        if not others:
            return found
        rest = _in_portions(self._encode_any, [strings[row] for row in others])
        return _put(found, others, rest)

    @functools.cached_property
    def _fast(self) -> Any:
        """From normalized texts to ids; None where the reference has to do everything."""
        vocab = self.reference.vocab
        return _fast_wordpiece(_lines(vocab)) if _UNKNOWN in vocab else None

    @functools.cached_property
    def _table(self) -> CharacterTable:
        fast = _fast_wordpiece([_UNKNOWN, "a", "b"])
        return CharacterTable(
            self.reference.basic_tokenizer, lambda texts: fast.tokenize(texts).to_list()
        )

    @functools.cached_property
    def _alphabet(self) -> Alphabet:
        lower = self.reference.basic_tokenizer.do_lower_case
        return Alphabet(self._table, self._encode_words, lower)

    def _simplify(self, texts: list[str], rows: list[int]) -> tuple[list[str], list[int]]:
        """Texts with those of some rows simplified, and rows where that cannot be: now empty."""
        found: list[str | None] = []
        for part in _portions([texts[row] for row in rows]):
            found += self._alphabet.simplify(part)
        texts = list(texts) if rows else texts
        for row, text in zip(rows, found, strict=True):
            texts[row] = text or ""
        return texts, [row for row, text in zip(rows, found, strict=True) if text is None]

    def _encode_simple(self, texts: list[str]) -> TokenIds:
        try:
            table = self._word_tables.pop()
        except IndexError:
            size = max(self.reference.vocab.values()) + 1
            table = WordTable(self._alphabet, self._encode_words, size)
        found = table.encode(texts)
        self._word_tables.append(table)
        return found

    def _encode_words(self, words: list[bytes]) -> TokenIds:
        too_long = b"a" * (_LONGEST_BYTES + 1)
        found = self._fast.tokenize([w if len(w) <= _LONGEST_WORD else too_long for w in words])
        return TokenIds(found.values.numpy(), found.row_splits.numpy())

    def _encode_any(self, texts: list[str]) -> TokenIds:
        cleaned = self._clean(texts)
        found = self._fast.tokenize(_without(cleaned.strings, cleaned.is_odd))
        ids = TokenIds(found.values.numpy(), found.row_splits.numpy())
        return self._hand_back(ids, texts, cleaned.is_odd)

    def _encode_with_spans(self, texts: list[str]) -> TokenIds:
        cleaned = self._clean(texts)
        found, *ends = self._fast.tokenize_with_offsets(_without(cleaned.strings, cleaned.is_odd))
        starts, ends = (places.values.numpy() for places in ends)
        row_splits = found.row_splits.numpy()
        spans = _spans(cleaned, np.repeat(np.arange(len(texts)), np.diff(row_splits)), starts, ends)
        ids = TokenIds(found.values.numpy(), row_splits, spans)
        return self._hand_back(ids, texts, cleaned.is_odd)

    def _hand_back(self, ids: TokenIds, texts: list[str], is_odd: np.ndarray) -> TokenIds:
        """Has the reference do what is left to it."""
        rows = np.flatnonzero(is_odd).tolist()
        if not rows:
            return ids
        return _put(ids, rows, self._by_reference([texts[r] for r in rows], ids.spans is not None))

    def _by_reference(self, texts: Sequence[str], with_spans: bool) -> TokenIds:
        with self._lock:
            self.handed_back += len(texts)
        reference = self.reference
        if not with_spans:
            tokens, spans = [reference.tokenize(text) for text in texts], None
        else:
            both = [tokenize_with_offsets(reference, text) for text in texts]
            tokens, spans = [token for token, _ in both], [span for _, span in both]
        return TokenIds.from_lists([reference.convert_tokens_to_ids(row) for row in tokens], spans)

    def _clean(self, texts: list[str]) -> _Cleaned:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        with self._lock:
            kinds = self._table.kinds(codes)
        borders = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        found = np.bitwise_or.reduce(kinds, initial=0)
        is_odd = np.zeros(len(texts), bool)
        if found & ODD:
            is_odd[np.searchsorted(borders, np.flatnonzero(kinds & ODD), "right") - 1] = True
        # In a cased vocabulary most texts are clean as they are.
        strings, ends, counts = list(texts), np.arange(len(codes) + 1), np.ones_like(kinds)
        if found & CHANGES:
            codes, counts = self._table.normalize(codes)
            ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            text = codes.tobytes().decode("utf-32-le")
            strings = [text[a:b] for a, b in itertools.pairwise(ends[borders].tolist())]
        if max(map(len, strings)) > _LONGEST_WORD:
            at = np.union1d(np.flatnonzero(kinds & BREAKS), borders[:-1])
            long = np.diff(np.concatenate([ends[at], ends[-1:]])) > _LONGEST_WORD
            is_odd[np.searchsorted(borders, at[long], "right") - 1] = True
        return _Cleaned(strings, is_odd, codes, counts, borders)


def _in_portions(encode: Callable[[list[str]], TokenIds], texts: list[str]) -> TokenIds:
    return TokenIds.concatenate([encode(part) for part in _portions(texts)])


def _put(ids: TokenIds, rows: list[int], others: TokenIds) -> TokenIds:
    """Puts texts where there are empty ones, in rows that rise."""
    cuts = ids.row_splits[rows].tolist()
    bounds = list(zip([0, *cuts], [*cuts, len(ids.ids)], strict=True))
    ends = others.row_splits.tolist()

    def merged(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        parts = [ours[begin:end] for begin, end in bounds]
        put = [theirs[begin:end] for begin, end in itertools.pairwise(ends)]
        return np.concatenate([*itertools.chain(*zip(parts, put, strict=False)), parts[-1]])

    lengths = ids.lengths
    lengths[rows] = others.lengths
    return TokenIds(
        merged(ids.ids, others.ids),
        np.concatenate([[0], np.cumsum(lengths)]),
        None if ids.spans is None or others.spans is None else merged(ids.spans, others.spans),
    )


def _without(strings: list[Any], is_odd: np.ndarray) -> list[Any]:
    for row in np.flatnonzero(is_odd):
        strings[row] = ""
    return strings


def _spans(cleaned: _Cleaned, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From the bytes that tokens come from to characters.

    Args:
        cleaned: the texts.
        rows: int64 [N]; the text of each token.
        starts: int64 [N]; the first byte of each in the UTF-8 of its normalized text.
        ends: int64 [N]; the first byte after it.

    Returns:
        Where the characters begin and end in the texts as they were given, int32 [N, 2].
    """
    # Of every normalized character: where its bytes end, and the character that gave it.
    codes = cleaned.codes
    sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    last_bytes = np.cumsum(sizes)
    sources = np.repeat(np.arange(len(cleaned.counts)), cleaned.counts)
    places = np.concatenate([[0], np.cumsum(cleaned.counts, dtype=np.int64)])[cleaned.borders[rows]]
    first_bytes = np.concatenate([[0], last_bytes])[places]
    first = sources[np.searchsorted(last_bytes, first_bytes + starts, "right")]
    last = sources[np.searchsorted(last_bytes, first_bytes + ends - 1, "right")]
    spans = np.stack([first, last + 1], axis=1) - cleaned.borders[rows, None]
    return spans.astype(np.int32)


def _portions(texts: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(texts), _TEXTS_TOGETHER):
        waiting = [texts[first : first + _TEXTS_TOGETHER]]
        while waiting:
            part = waiting.pop()
            if len(part) > 1 and len("".join(part)) > _CHARS_TOGETHER:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                yield part


def _lines(vocab: dict[str, int]) -> list[str]:
    """A vocabulary as a list with every id, without duplicates and what no word can be made of."""
    # Brackets are words of their own, so no word is like this.
    lines = [f"[{index}]" for index in range(max(vocab.values(), default=-1) + 1)]
    for token, index in vocab.items():
        body = token.removeprefix("##")
        single = len(token) == 1 or token == _UNKNOWN
        if body and (single or body.isalnum() or not any(map(_ends_word, body))):
            lines[index] = token
    return lines


def _ends_word(char: str) -> bool:
    # Or is never left in a word.
    return char.isspace() or is_punctuation(char) or is_control(char) or char == "\ufffd"


@functools.lru_cache(maxsize=1)
def _tensorflow_text() -> Any:
    """The package; None where there is none, or not one of TensorFlow's version."""
    import tensorflow as tf

    try:
        import tensorflow_text
    except (ImportError, AttributeError, tf.errors.OpError) as error:
        _logger.warning(
            "TensorFlow Text cannot be used (%s): texts are tokenized by Python, with the same "
            "result, but more slowly. Install tensorflow-text of TensorFlow's version",
            error,
        )
        return None
    return tensorflow_text


def _fast_wordpiece(lines: list[str]) -> Any:
    if not _tensorflow_text():
        return None
    import tensorflow as tf

    try:
        return _tensorflow_text().FastWordpieceTokenizer(
            vocab=lines,
            token_out_type=tf.int32,
            unknown_token=_UNKNOWN,
            max_bytes_per_word=_LONGEST_BYTES,
        )
    except RuntimeError as error:  # A piece of more than 256 bytes, or none at all.
        _logger.warning("The vocabulary is too unusual for fast tokenization: %s", error)
        return None
