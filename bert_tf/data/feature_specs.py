"""Declares the features of records and batches."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Feature:
    """Declares a feature of a record.

    Attributes:
        name: key in the `tf.train.Example`.
        length: number of values, or a shape such as (texts, max_seq_length); None for a scalar.
        dtype: stored type; integers are parsed to int32, as in the original, for TPUs.
        per_token: whether the last axis holds one value per token of a padded text, so that a batch
            can be trimmed to its longest text.
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
    """Declares the encoder's inputs: int64 [max_seq_length], or [texts_per_row, max_seq_length]."""
    shape = max_seq_length if texts_per_row is None else (texts_per_row, max_seq_length)
    return tuple(
        Feature(name, shape, per_token=True) for name in ("input_ids", "input_mask", "segment_ids")
    )
