"""Converts examples to features one at a time, like the original BERT code; needs no TensorFlow."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.data.packing import pack_batch
from bert_tf.errors import UserError
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

_logger = logging.getLogger(__name__)

# Number of examples of a data set that are logged.
NUM_LOGGED = 5


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


@dataclass(frozen=True)
class PaddingInputExample:
    """Pads the last batch on a TPU, where all batches must have the same size.

    As in the original, this is a class instead of None, so that None in a list remains an error.
    """


@dataclass
class InputFeatures:
    """Features of one example; each list has one number for each of `max_seq_length` positions.

    Attributes:
        input_ids: vocabulary ids, 0 for padding.
        input_mask: 1 for tokens, 0 for padding.
        segment_ids: 0 for `[CLS] A [SEP]` and padding, 1 for `B [SEP]`.
        label_id: index of the label in the label list; for regression, the label as a number.
        is_real_example: False for a `PaddingInputExample`.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float
    is_real_example: bool = True


def convert_single_example(
    ex_index: int,
    example: InputExample | PaddingInputExample,
    label_list: Sequence[Any],
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> InputFeatures:
    """Tokenizes, truncates and packs one example, as the original does.

    Args:
        ex_index: index of the example; the first five are logged at level DEBUG.
        example: the example; all features of a `PaddingInputExample` are zeros.
        label_list: labels in the order of their ids; empty for regression.
        max_seq_length: sequence length, at least 2 for a single text and 3 for a pair.
        tokenizer: tokenizer of the model's vocabulary.

    Raises:
        UserError: the label is missing, not in `label_list` or, for regression, not a number; or
            the special tokens do not fit into `max_seq_length`.
    """
    if isinstance(example, PaddingInputExample):
        zeros = ([0] * max_seq_length for _ in range(3))
        return InputFeatures(*zeros, label_id=0, is_real_example=False)
    label_id = find_label_id(example, label_list)
    packed = pack_example(example, max_seq_length, tokenizer)
    if ex_index < NUM_LOGGED:
        row = {**packed, "label_id": label_id}
        rows = {name: np.array([values]) for name, values in row.items()}
        log_rows(f"Example {example.guid}", rows, tokenizer)
    return InputFeatures(**packed, label_id=label_id)


def pack_example(
    example: Any, max_seq_length: int, tokenizer: FullTokenizer
) -> dict[str, list[int]]:
    """Tokenizes, truncates and packs the texts of an example; see `packing.pack_batch`."""
    texts = [example.text_a, example.text_b or ""]
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
    a, b = (RaggedIds.from_lists([text_ids]) for text_ids in ids)
    special_ids = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    packed = pack_batch(a, b, max_seq_length, *special_ids)
    return {name: rows[0].tolist() for name, rows in packed.items()}


def convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[Any],
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> list[InputFeatures]:
    """Converts examples with `convert_single_example`, in order."""
    return [
        convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer)
        for ex_index, example in enumerate(examples)
    ]


def find_label_id(example: InputExample, label_list: Sequence[Any]) -> int | float:
    """Returns the label's index in `label_list`; for regression (empty list), the number itself."""
    if example.label is None:
        raise UserError(f"Example {example.guid} has no label")
    subject = f"Label {example.label!r} of example {example.guid}"
    if len(label_list) == 0:
        try:
            return float(str(example.label))
        except ValueError:
            raise UserError(f"{subject} is not a number") from None
    labels = list(label_list)
    for label in (example.label, str(example.label)):
        if label in labels:
            return labels.index(label)
    raise UserError(f"{subject} is not one of {', '.join(map(str, labels))}")


def label_ids_of(examples: Sequence[InputExample], label_list: Sequence[str]) -> np.ndarray:
    """Returns each example's label id, int32 [B]; for regression (empty list), float32 [B]."""
    labels = [find_label_id(example, label_list) for example in examples]
    return np.array(labels, np.int32 if label_list else np.float32)


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
