"""Declarations of features; labeled text examples, and their conversion one by one."""

import contextlib
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bert_tf.base.errors import UserError
from bert_tf.data.packing import pack_batch
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

_logger = logging.getLogger(__name__)

NUM_LOGGED = 5


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


@dataclass
class InputExample:
    """One text, or a pair of texts, with its label.

    Attributes:
        guid: id, unique within its split.
        text_a: the text, or the first text of a pair.
        text_b: the second text of a pair; None or empty for a single text.
        label: the label as read, usually a string; a tuple of labels for multi-label data;
            None if unlabeled.
    """

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Any = None


def pack_example(example: Any, max_seq_length: int, tokenizer: FullTokenizer) -> dict[str, Any]:
    """Tokenizes, truncates and packs the texts of an example; see `packing.pack_batch`."""
    texts = [example.text_a, example.text_b or ""]
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
    a, b = (RaggedIds.from_lists([text_ids]) for text_ids in ids)
    special_ids = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    packed = pack_batch(a, b, max_seq_length, *special_ids)
    return {name: rows[0].tolist() for name, rows in packed.items()}


def find_label_id(example: InputExample, label_list: Sequence[Any]) -> int | float:
    """Returns the label's index in `label_list`; for regression (empty list), the number itself."""
    labels = list(label_list)
    with contextlib.suppress(ValueError):
        if not labels:
            return float(str(example.label))
        is_exact = example.label is None or example.label in labels
        return labels.index(example.label if is_exact else str(example.label))
    expected = f"one of {', '.join(map(str, labels))}" if labels else "a number"
    raise UserError(f"Label {example.label!r} of example {example.guid} is not {expected}")


def log_rows(title: str, rows: Mapping[str, np.ndarray], tokenizer: FullTokenizer) -> None:
    """Logs the first five rows as tokens and numbers, at level DEBUG."""
    if not _logger.isEnabledFor(logging.DEBUG):
        return
    for index in range(min(NUM_LOGGED, len(rows["input_ids"]))):
        row = {name: np.ravel(values[index]) for name, values in rows.items()}
        ids = row["input_ids"][row["input_mask"] > 0].tolist()
        columns = {"tokens": tokenizer.convert_ids_to_tokens(ids), **row}
        lines = [f"  {name}: {' '.join(map(str, values))}" for name, values in columns.items()]
        _logger.debug("%s\n%s", title, "\n".join(lines))
