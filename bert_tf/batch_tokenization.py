"""Ids of the tokens of many texts at once: the reference's ids, at the speed of compiled code.

`tokenization.FullTokenizer` is the reference. Here texts are cleaned by NumPy and cut by
TensorFlow Text's `FastWordpieceTokenizer` (Song et al. 2021, "Fast WordPiece Tokenization"). A
text with something that these would not do in the same way is found and handed to the reference.
Where TensorFlow Text is not installed, all texts are.
"""

import functools
import itertools
import logging
import string
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.character_table import BREAKS, CHANGES, ODD, CharacterTable
from bert_tf.tokenization import FullTokenizer, convert_to_unicode, is_control, is_punctuation

_logger = logging.getLogger(__name__)

# Characters and texts that are worked on together: what they need fits into the caches.
_TEXTS_TOGETHER = 4096
_CHARS_TOGETHER = 1 << 19

# `FullTokenizer` has no others.
_UNKNOWN = "[UNK]"
_LONGEST_WORD = 200

# Between texts that are cleaned together; no ASCII character.
_BORDER = 0xFF
_DROPPED = bytes({*range(32), 127} - {*b"\t\n\r"})


@dataclass(frozen=True)
class TokenIds:
    """Ids of the tokens of texts, one text after the other.

    Attributes:
        ids: int32 [N].
        row_splits: int64 [B + 1]; text i has `ids[row_splits[i] : row_splits[i + 1]]`.
    """

    ids: np.ndarray
    row_splits: np.ndarray

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.ids[self.row_splits[index] : self.row_splits[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 [B]."""
        return np.diff(self.row_splits)

    def take(self, rows: np.ndarray) -> "TokenIds":
        """The texts of these numbers, in this order."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        places = np.repeat(self.row_splits[rows] - (ends - lengths), lengths)
        return TokenIds(
            self.ids[places + np.arange(len(places))], np.concatenate([[0], ends]).astype(np.int64)
        )

    @staticmethod
    def from_lists(rows: Sequence[Sequence[int]]) -> "TokenIds":
        """From a list of ids for each text."""
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.array([number for row in rows for number in row], np.int32)
        return TokenIds(ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    @staticmethod
    def concatenate(parts: Sequence["TokenIds"]) -> "TokenIds":
        """The texts of all parts."""
        lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        return TokenIds(ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


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
        self._ascii = _AsciiTable(tokenizer.basic_tokenizer.do_lower_case)

    def encode(self, texts: Sequence[str | bytes]) -> TokenIds:
        """Ids of the tokens of each text, without special tokens.

        Raises:
            ValueError: a text is neither str nor bytes.
            KeyError: the vocabulary has no `[UNK]`, and a text needs it.
        """
        strings = [text if type(text) is str else convert_to_unicode(text) for text in texts]
        if not strings:
            return TokenIds.from_lists([])
        with self._lock:
            self.texts += len(strings)
            compiled = self._cutter is not None
        if not compiled:
            return self._by_reference(strings)
        return TokenIds.concatenate([self._encode(part) for part in _portions(strings)])

    @functools.cached_property
    def _cutter(self) -> Any:
        """From cleaned texts to ids; None where the reference has to do everything."""
        vocab = self.reference.vocab
        fast = _fast_wordpiece(_lines(vocab)) if _UNKNOWN in vocab else None
        if fast is None:
            return None

        def cut(texts: Sequence[Any]) -> TokenIds:
            found = fast.tokenize(texts)
            return TokenIds(found.values.numpy(), found.row_splits.numpy())

        return cut

    @functools.cached_property
    def _table(self) -> CharacterTable:
        fast = _fast_wordpiece([_UNKNOWN, "a", "b"])
        return CharacterTable(
            self.reference.basic_tokenizer, lambda texts: fast.tokenize(texts).to_list()
        )

    def _encode(self, texts: list[str]) -> TokenIds:
        plain = np.array([text.isascii() for text in texts])
        if plain.all():
            cleaned, is_odd = self._ascii.clean(texts)
        else:
            cleaned, is_odd = [""] * len(texts), np.zeros(len(texts), bool)
            for group, clean in ((plain, self._ascii.clean), (~plain, self._clean)):
                rows = np.flatnonzero(group)
                if len(rows):
                    strings, is_odd[rows] = clean([texts[row] for row in rows])
                    for row, string in zip(rows, strings, strict=True):
                        cleaned[row] = string
        if not is_odd.any():
            return self._cutter(cleaned)
        rest = np.flatnonzero(is_odd)
        for row in rest:
            cleaned[row] = ""
        handed_back = self._by_reference([texts[row] for row in rest])
        order = np.arange(len(texts))
        order[rest] = len(texts) + np.arange(len(rest))
        return TokenIds.concatenate([self._cutter(cleaned), handed_back]).take(order)

    def _by_reference(self, texts: Sequence[str]) -> TokenIds:
        with self._lock:
            self.handed_back += len(texts)
        reference = self.reference
        return TokenIds.from_lists(
            [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
        )

    def _clean(self, texts: list[str]) -> tuple[list[Any], np.ndarray]:
        """Normalized texts, and which of them the reference has to do."""
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        with self._lock:
            kinds = self._table.kinds(codes)
        borders = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        found = np.bitwise_or.reduce(kinds)
        is_odd = np.zeros(len(texts), bool)
        if found & ODD:
            is_odd[np.searchsorted(borders, np.flatnonzero(kinds & ODD), "right") - 1] = True
        # In a cased vocabulary most texts are clean as they are.
        strings, ends = texts, np.arange(len(codes) + 1)
        if found & CHANGES:
            normalized, counts = self._table.normalize(codes)
            ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            text = normalized.tobytes().decode("utf-32-le")
            strings = [text[a:b] for a, b in itertools.pairwise(ends[borders].tolist())]
        if max(map(len, strings)) > _LONGEST_WORD:
            at = np.union1d(np.flatnonzero(kinds & BREAKS), borders[:-1])
            long = np.diff(np.concatenate([ends[at], ends[-1:]])) > _LONGEST_WORD
            is_odd[np.searchsorted(borders, at[long], "right") - 1] = True
        return list(strings), is_odd


class _AsciiTable:
    """Cleans ASCII texts."""

    def __init__(self, lower: bool) -> None:
        table = bytearray(range(256))
        for space in b"\t\n\r":
            table[space] = ord(" ")
        if lower:
            table = table[:128].lower() + table[128:]
        self._table = bytes(table)
        self._breaks = np.zeros(256, bool)
        self._breaks[[*b" ", *string.punctuation.encode(), _BORDER]] = True

    def clean(self, texts: Sequence[str]) -> tuple[list[Any], np.ndarray]:
        """Normalized texts, and which of them have words that are too long."""
        joined = chr(_BORDER).join(texts).encode("latin-1").translate(self._table, _DROPPED)
        is_odd = np.zeros(len(texts), bool)
        if max(map(len, texts)) > _LONGEST_WORD:
            codes = np.frombuffer(joined, np.uint8)
            at = np.concatenate([[-1], np.flatnonzero(self._breaks[codes]), [len(codes)]])
            long = at[1:][np.diff(at) > _LONGEST_WORD + 1]
            is_odd[np.searchsorted(np.flatnonzero(codes == _BORDER), long, "left")] = True
        return joined.split(bytes([_BORDER])), is_odd


def _portions(texts: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(texts), _TEXTS_TOGETHER):
        waiting = [texts[first : first + _TEXTS_TOGETHER]]
        while waiting:
            part = waiting.pop()
            if len(part) > 1 and sum(map(len, part)) > _CHARS_TOGETHER:
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
            # Bytes: 200 characters, the limit of the original, have no more.
            max_bytes_per_word=800,
        )
    except RuntimeError as error:  # A piece of more than 256 bytes, or none at all.
        _logger.warning("The vocabulary is too unusual for fast tokenization: %s", error)
        return None
