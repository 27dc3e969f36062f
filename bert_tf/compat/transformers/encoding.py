"""What the tokenizers of transformers return: rows of ids, and where their tokens come from."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree  # pyright: ignore[reportMissingImports]

from bert_tf.base import backend
from bert_tf.base.errors import UserError


class CharSpan(NamedTuple):
    """A range of characters in a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """A range of tokens in a row."""

    start: int
    end: int


class Tokens:
    """The tokens of a text, or of its words, without `[CLS]` and `[SEP]`.

    `locate` returns the first character, the end and the word of each token; the characters are
    those of the text, or of the word if the text was passed as words.
    """

    def __init__(self, ids: list[int], locate: Callable[[], list[tuple[int, int, int]]]) -> None:
        self.ids, self._locate = ids, locate

    @functools.cached_property
    def places(self) -> list[tuple[int, int, int]]:
        """First character, end and word of each token."""
        return self._locate()

    def part(self, start: int, end: int) -> "Tokens":
        """Returns a range of the tokens."""
        if (start, end) == (0, len(self.ids)):
            return self
        return Tokens(self.ids[start:end], functools.partial(self._places_in, start, end))

    def _places_in(self, start: int, end: int) -> list[tuple[int, int, int]]:
        return self.places[start:end]


class Encoding:
    """A row: the tokens of one or two texts, special tokens, and padding.

    Args:
        texts: the tokens of the texts.
        vocab: id -> token.
        special_ids: ids of `[CLS]`, `[SEP]` and `[PAD]`.
        has_special: whether the row has `[CLS]` and `[SEP]`.
        types: token type of each text; `[SEP]` has that of the text before it.
    """

    def __init__(
        self,
        texts: Sequence[Tokens],
        vocab: Mapping[int, str],
        special_ids: Sequence[int],
        has_special: bool,
        types: Sequence[int],
    ) -> None:
        self._texts, self._vocab, self._special_ids = texts, vocab, special_ids
        self._has_special, self._types = has_special, types
        self._num_pads, self._pads_left = 0, False
        num_special = (len(texts) + 1) * has_special
        self._num_tokens = num_special + sum(len(text.ids) for text in texts)

    def __len__(self) -> int:
        return self._num_tokens + self._num_pads

    def pad(self, length: int, left: bool) -> None:
        """Pads the row to a length."""
        self._num_pads, self._pads_left = max(0, length - self._num_tokens), left

    def _row(self, values: Iterable[list[Any]], cls: Any, sep: Any, pad: Any) -> list[Any]:
        """Returns a list with the values of each text's tokens, `[CLS]`, `[SEP]` and padding."""
        row = [cls] if self._has_special else []
        for part in values:
            row += [*part, sep] if self._has_special else part
        return self._padded(row, pad)

    def _padded(self, row: list[Any], value: Any) -> list[Any]:
        pads = [value] * self._num_pads
        return pads + row if self._pads_left else row + pads

    @property
    def ids(self) -> list[int]:
        """The ids."""
        return self._row((text.ids for text in self._texts), *self._special_ids)

    @property
    def type_ids(self) -> list[int]:
        """The token types."""
        row = [self._types[0]] * self._has_special
        for kind, text in zip(self._types, self._texts, strict=False):
            row += [kind] * (len(text.ids) + self._has_special)
        return self._padded(row, 0)

    @property
    def attention_mask(self) -> list[int]:
        """1 for tokens, 0 for padding."""
        return self._padded([1] * self._num_tokens, 0)

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special tokens that were added, and for padding."""
        return self._row(([0] * len(text.ids) for text in self._texts), 1, 1, 1)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """First character and end of each token; (0, 0) for special tokens."""
        values = ([place[:2] for place in text.places] for text in self._texts)
        return self._row(values, *[(0, 0)] * 3)

    @property
    def word_ids(self) -> list[int | None]:
        """The index of each token's word in its text."""
        values = ([word for *_, word in text.places] for text in self._texts)
        return self._row(values, None, None, None)

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for tokens of the first text, 1 for those of the second."""
        values = ([i] * len(text.ids) for i, text in enumerate(self._texts))
        return self._row(values, None, None, None)

    @property
    def tokens(self) -> list[str]:
        """The tokens."""
        return [self._vocab[index] for index in self.ids]

    def char_to_token(self, char: int, sequence: int = 0) -> int | None:
        """Returns the token of a character; None for whitespace."""
        pairs = zip(self.sequence_ids, self.offsets, strict=True)
        found = (i for i, (s, (a, b)) in enumerate(pairs) if s == sequence and a <= char < b)
        return next(found, None)

    def token_to_chars(self, token: int) -> CharSpan | None:
        """Returns the characters of a token; None for special tokens."""
        return None if self.word_ids[token] is None else CharSpan(*self.offsets[token])

    def token_to_word(self, token: int) -> int | None:
        """Returns the word of a token; None for special tokens."""
        return self.word_ids[token]

    def word_to_tokens(self, word: int, sequence: int = 0) -> TokenSpan | None:
        """Returns the tokens of a word; None if it has none."""
        pairs = zip(self.sequence_ids, self.word_ids, strict=True)
        found = [i for i, pair in enumerate(pairs) if pair == (sequence, word)]
        return TokenSpan(found[0], found[-1] + 1) if found else None


class BatchEncoding(dict[str, Any]):
    """Inputs of a model by name, also as attributes; with an index, the `Encoding` of a row.

    Args:
        data: name -> lists or arrays.
        encodings: the rows.
        tensor_type: `tf` or `np` to convert the lists to tensors or arrays.
        prepend_batch_axis: whether `data` has only one row, which becomes a batch.
    """

    def __init__(
        self,
        data: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        encodings: Sequence[Encoding] = (),
        tensor_type: str | None = None,
        prepend_batch_axis: bool = False,
    ) -> None:
        super().__init__(data)
        self.encodings = list(encodings)
        self.convert_to_tensors(tensor_type, prepend_batch_axis)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        rows = self.encodings[key]
        return {name: x[key] for name, x in self.items()} if isinstance(key, slice) else rows

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in ("char_to_token", "token_to_chars", "token_to_word", "word_to_tokens"):
            return functools.partial(self._look_up, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchEncoding, (dict(self), self.encodings)

    @property
    def data(self) -> dict[str, Any]:
        """The inputs as a dict."""
        return dict(self)

    def convert_to_tensors(
        self, tensor_type: str | None = None, prepend_batch_axis: bool = False
    ) -> "BatchEncoding":
        """Converts all values to arrays (`np`) or tensors (`tf`), in place."""
        if tensor_type not in (None, "np", "tf"):
            raise UserError(f"return_tensors must be 'tf' or 'np'. Received: {tensor_type!r}")
        for key, value in self.items() if tensor_type else ():
            try:
                array = np.asarray([value] if prepend_batch_axis else value)
            except ValueError as error:
                fix = "Pass padding=True, truncation=True"
                raise UserError(f"rows of {key} differ in length", fix=fix) from error
            integers = np.int32 if tensor_type == "tf" else np.int64
            array = array.astype(integers) if array.dtype == np.int64 or not array.size else array
            self[key] = backend.tf.constant(array) if tensor_type == "tf" else array
        return self

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Returns the tokens of a row."""
        return self.encodings[batch_index].tokens

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Returns the word of each token of a row; None for special tokens."""
        return self.encodings[batch_index].word_ids

    words = word_ids

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Returns the text of each token of a row, 0 or 1; None for special tokens."""
        return self.encodings[batch_index].sequence_ids

    def _look_up(self, name: str, row: int, index: int | None = None, *args: Any, **kw: Any) -> Any:
        """Calls a method of a row; without the index of the row, of the first."""
        sequence = {"sequence": kw["sequence_index"]} if "sequence_index" in kw else {}
        row, index = (0, row) if index is None else (row, index)
        return getattr(self.encodings[row], name)(index, *args, **sequence)


def _flatten(encoding: BatchEncoding) -> tuple[list[Any], list[str], list[str]]:
    names = sorted(encoding)
    return [encoding[name] for name in names], names, names


# Keras then takes it as a dict, whose entries it sorts.
optree.register_pytree_node(
    BatchEncoding,
    _flatten,
    lambda names, values: dict(zip(names, values, strict=True)),
    namespace="keras",
)
