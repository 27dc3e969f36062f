"""Converts examples to features one at a time, as in the original; does not import TensorFlow."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tokenization import FullTokenizer

_logger = logging.getLogger(__name__)

_NUM_LOGGED = 5


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
    """Features of one example; the three lists have `max_seq_length` entries.

    Attributes:
        input_ids: vocabulary ids, 0 for padding.
        input_mask: 1 for tokens, 0 for padding.
        segment_ids: 0 for `[CLS] A [SEP]` and padding, 1 for `B [SEP]`.
        label_id: index of the label in the label list; the number itself for regression.
        is_real_example: False for a `PaddingInputExample`.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float
    is_real_example: bool = True


@dataclass(frozen=True, slots=True)
class PackedSequence:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`; all but `tokens` are padded with zeros."""

    tokens: list[str]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int) -> None:
    """Truncates a pair in place to at most `max_length` tokens in total.

    As in the original, tokens are removed one by one from the end of the longer list; on a tie,
    from `tokens_b`. A short text paired with a long one is thus kept whole.
    """
    if max_length < 0:
        raise ValueError(f"max_length must be 0 or more. Received: max_length={max_length}")
    length_a, length_b = truncated_lengths(len(tokens_a), len(tokens_b), max_length)
    del tokens_a[int(length_a) :]
    del tokens_b[int(length_b) :]


def truncated_lengths(length_a: Any, length_b: Any, max_length: Any) -> tuple[Any, Any]:
    """Returns the lengths that `truncate_seq_pair` leaves, for one pair or for arrays."""
    excess = np.maximum(length_a + length_b - max_length, 0)
    # First only the longer text is truncated, then both alternately, starting with B.
    only_longer = np.minimum(np.abs(length_a - length_b), excess)
    alternating = excess - only_longer
    a_is_longer = length_a > length_b
    from_a = alternating // 2 + np.where(a_is_longer, only_longer, 0)
    from_b = alternating - alternating // 2 + np.where(a_is_longer, 0, only_longer)
    return length_a - from_a, length_b - from_b


def truncate_to_fit(tokens_a: list[str], tokens_b: list[str] | None, max_seq_length: int) -> None:
    """Truncates a text or pair in place to fit `max_seq_length` with its special tokens."""
    require_room(bool(tokens_b), max_seq_length)
    if tokens_b:
        truncate_seq_pair(tokens_a, tokens_b, max_seq_length - 3)
    else:
        del tokens_a[max_seq_length - 2 :]


def require_room(pair: bool, max_seq_length: int) -> None:
    """Raises a UserError if `max_seq_length` cannot hold the special tokens of a text or pair."""
    num_special = 3 if pair else 2
    if max_seq_length < num_special:
        kind, form = ("pair", "[CLS] A [SEP] B [SEP]") if pair else ("text", "[CLS] A [SEP]")
        raise UserError(
            f"max_seq_length={max_seq_length} is too small: the {num_special} special tokens of a "
            f"{kind} ({form}) do not fit"
        )


def pack(
    tokens_a: Sequence[str],
    tokens_b: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> PackedSequence:
    """Adds special tokens, mask and segment ids to a text or pair, and pads to `max_seq_length`.

    A pair with `max_seq_length=9` (tokens, segment ids, mask):

        [CLS] is it [SEP] no [SEP]
          0   0  0    0   1    1   0 0 0
          1   1  1    1   1    1   0 0 0

    Raises:
        ValueError: there are more than `max_seq_length` tokens; see `truncate_to_fit`.
    """
    tokens = ["[CLS]", *tokens_a, "[SEP]"]
    segment_ids = [0] * len(tokens)
    if tokens_b:
        tokens += [*tokens_b, "[SEP]"]
        segment_ids += [1] * (len(tokens_b) + 1)
    padding = [0] * (max_seq_length - len(tokens))
    if len(tokens) > max_seq_length:
        raise ValueError(f"{len(tokens)} tokens do not fit into max_seq_length={max_seq_length}")
    return PackedSequence(
        tokens=tokens,
        input_ids=tokenizer.convert_tokens_to_ids(tokens) + padding,
        input_mask=[1] * len(tokens) + padding,
        segment_ids=segment_ids + padding,
    )


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
        example: a `PaddingInputExample` becomes zeros.
        label_list: labels in the order of their ids; empty for regression.
        max_seq_length: sequence length, at least 2, or 3 for pairs.
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
    if ex_index < _NUM_LOGGED:
        _log_example(example, packed, label_list)
    return InputFeatures(packed.input_ids, packed.input_mask, packed.segment_ids, label_id)


def pack_example(example: Any, max_seq_length: int, tokenizer: FullTokenizer) -> PackedSequence:
    """Tokenizes, truncates and packs the texts of an example."""
    tokens_a = tokenizer.tokenize(example.text_a)
    tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else None
    truncate_to_fit(tokens_a, tokens_b, max_seq_length)
    return pack(tokens_a, tokens_b, max_seq_length, tokenizer)


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
    """Returns the index of an example's label; if the list is empty, the label as a number."""
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


def log_examples(
    examples: Sequence[InputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
) -> None:
    """Logs the first five examples as tokens and ids, at level DEBUG."""
    if _logger.isEnabledFor(logging.DEBUG):
        for example in examples[:_NUM_LOGGED]:
            _log_example(example, pack_example(example, max_seq_length, tokenizer), label_list)


def _log_example(example: InputExample, packed: PackedSequence, label_list: Sequence[Any]) -> None:
    label, labels = example.label, list(label_list)
    lines = [f"Example {example.guid}"]
    for name in ("tokens", "input_ids", "input_mask", "segment_ids"):
        lines.append(f"  {name}: {' '.join(map(str, getattr(packed, name)))}")
    label_id = f" (id = {labels.index(label)})" if label in labels else ""
    _logger.debug("%s", "\n".join([*lines, f"  label: {label}{label_id}"]))
