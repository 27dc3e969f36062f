"""Declarations of the features of records and batches."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Feature:
    """Declares a feature of a record.

    Attributes:
        name: key in the `tf.train.Example`.
        length: number of values, or a shape such as (choices, max_seq_length); None for a scalar.
        dtype: stored type. As in the original BERT code, stored int64 values are read as int32,
            because TPUs do not support int64.
        per_token: whether the last axis has one value per token or padding position, so that a
            batch can be trimmed to its longest text.
        mask: for such features, the name of the feature that says which positions have tokens.
            Texts of different kinds, such as queries and passages, have different masks.
    """

    name: str
    length: int | tuple[int, ...] | None = None
    dtype: Literal["int64", "float32"] = "int64"
    per_token: bool = False
    mask: str = field(default="input_mask", repr=False)

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "float32") or any(length < 1 for length in self.shape):
            raise ValueError(f"{self} must have a positive length and dtype int64 or float32")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a parsed value."""
        return (self.length,) if isinstance(self.length, int) else self.length or ()


def texts_per_row(features: Iterable[Feature]) -> int:
    """Returns the number of texts in a row whose inputs are [C, S]; 1 if they are [S]."""
    shapes = {feature.name: feature.shape for feature in features}
    return math.prod(shapes.get("input_ids", ())[:-1])


def sequence_features(
    max_seq_length: int, texts_per_row: int | None = None, prefix: str = ""
) -> tuple[Feature, ...]:
    """Declares the encoder's inputs: [max_seq_length], or [texts_per_row, max_seq_length] each.

    `prefix` is that of the names, for rows with texts of different kinds.
    """
    shape = max_seq_length if texts_per_row is None else (texts_per_row, max_seq_length)
    return tuple(
        Feature(f"{prefix}{name}", shape, per_token=True, mask=f"{prefix}input_mask")
        for name in ("input_ids", "input_mask", "segment_ids")
    )
