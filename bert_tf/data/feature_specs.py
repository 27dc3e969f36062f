"""Declarations of the features of records and batches."""

from dataclasses import dataclass
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
    """

    name: str
    length: int | tuple[int, ...] | None = None
    dtype: Literal["int64", "float32"] = "int64"
    per_token: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "float32") or any(length < 1 for length in self.shape):
            raise ValueError(f"{self} must have a positive length and dtype int64 or float32")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a parsed value."""
        return (self.length,) if isinstance(self.length, int) else self.length or ()


def sequence_features(max_seq_length: int, texts_per_row: int | None = None) -> tuple[Feature, ...]:
    """Declares the encoder's inputs: [max_seq_length], or [texts_per_row, max_seq_length] each."""
    shape = max_seq_length if texts_per_row is None else (texts_per_row, max_seq_length)
    return tuple(
        Feature(name, shape, per_token=True) for name in ("input_ids", "input_mask", "segment_ids")
    )
