"""What the tokenizers of transformers return: rows of ids, and where their tokens come from."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import optree  # pyright: ignore[reportMissingImports]

from bert_tf.base import backend
from bert_tf.base.errors import UserError


class Span(NamedTuple):
    """A range of characters in a text."""

    start: int
    end: int


class Encoding(NamedTuple):
    """A row: lists with a value for each token, None for special tokens and padding."""

    ids: list[int]
    type_ids: list[int]
    attention_mask: list[int]
    special_tokens_mask: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    sequence_ids: list[int | None]
    tokens: list[str]


class BatchEncoding(dict[str, Any]):
    """Inputs of a model by name, also as attributes; with an index, the `Encoding` of a row.

    `locate` returns the rows, with offsets; `tensor_type` may be `tf` or `np`.
    """

    def __init__(
        self,
        data: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        locate: Callable[[], list[Encoding]] = list,
        tensor_type: str | None = None,
    ) -> None:
        super().__init__(data)
        self.locate = locate
        self.convert_to_tensors(tensor_type)

    def convert_to_tensors(self, tensor_type: str | None = None) -> Self:
        """Makes the values arrays or tensors."""
        if tensor_type not in (None, "np", "tf"):
            raise UserError(f"return_tensors must be 'tf' or 'np'. Received: {tensor_type!r}")
        for key, value in self.items() if tensor_type else ():
            try:
                array = np.asarray(value)
            except ValueError as error:
                fix = "Pass padding=True, truncation=True"
                raise UserError(f"rows of {key} differ in length", fix=fix) from error
            integers = np.int32 if tensor_type == "tf" else np.int64
            array = array.astype(integers) if array.dtype == np.int64 or not array.size else array
            self[key] = backend.tf.constant(array) if tensor_type == "tf" else array
        return self

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.encodings[key]

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    data = property(dict)

    @functools.cached_property
    def encodings(self) -> list[Encoding]:
        """The rows."""
        return self.locate()

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Returns the tokens of a row."""
        return self.encodings[batch_index].tokens

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Returns the word of each token of a row; None for special tokens."""
        return self.encodings[batch_index].word_ids

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Returns the text of each token of a row, 0 or 1; None for special tokens."""
        return self.encodings[batch_index].sequence_ids

    def _find(self, row: int, index: int | None) -> tuple[Encoding, int]:
        # Without the index of a row, the first is meant.
        return (self.encodings[0], row) if index is None else (self.encodings[row], index)

    def char_to_token(self, row: int, char: int | None = None, sequence_index: int = 0) -> Any:
        """Returns the token of a character; None for whitespace."""
        found, char = self._find(row, char)
        pairs = enumerate(zip(found.sequence_ids, found.offsets, strict=True))
        inside = (i for i, (s, (a, b)) in pairs if s == sequence_index and a <= char < b)
        return next(inside, None)

    def token_to_chars(self, row: int, token: int | None = None) -> Span | None:
        """Returns the characters of a token; None for special tokens."""
        found, token = self._find(row, token)
        return None if found.word_ids[token] is None else Span(*found.offsets[token])


# Keras then takes it as a dict, whose entries it sorts.
_register: Any = optree.register_pytree_node
_register(
    BatchEncoding,
    lambda x: ([x[name] for name in sorted(x)], sorted(x), sorted(x)),
    lambda names, values: dict(zip(names, values, strict=True)),
    namespace="keras",
)
