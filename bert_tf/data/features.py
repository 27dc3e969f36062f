"""From texts with labels to the numbers that go into the model, without TensorFlow."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

_EXAMPLES_SHOWN = 5


class Tokenizer(Protocol):
    """What is needed of a tokenizer here; `tokenization.FullTokenizer` has it."""

    def tokenize(self, text: str) -> list[str]:
        """Word pieces of a text."""
        ...

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        """The vocabulary's number of each token."""
        ...


@dataclass
class InputExample:
    """One text, or a pair of texts, with its label.

    Attributes:
        guid: a name for the example, unique in its split.
        text_a: the text, not tokenized.
        text_b: the second text of a pair; None or empty for single texts.
        label: the label as it stands in the data, mostly a string; a tuple of labels for
            multi-label data; None if there is none.
    """

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Any = None


@dataclass(frozen=True)
class PaddingInputExample:
    """Fills up the last batch on a TPU, where every batch must have the same size.

    It has no content, and nothing that is computed from it may count anywhere. A class of its
    own, and not None, so that a None that got in by mistake is noticed.
    """


@dataclass
class InputFeatures:
    """One example in numbers; the three lists have `max_seq_length` entries.

    Attributes:
        input_ids: vocabulary ids, 0 for padding.
        input_mask: 1 for a token, 0 for padding.
        segment_ids: 0 for the first text with its special tokens, 1 for the second, 0 for padding.
        label_id: position of the label in the label list; the number itself for a regression.
        is_real_example: False for a `PaddingInputExample`.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float
    is_real_example: bool = True


@dataclass(frozen=True, slots=True)
class PackedSequence:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    `tokens` has no padding; `input_ids`, `input_mask` and `segment_ids` are padded with zeros
    to `max_seq_length`.
    """

    tokens: list[str]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int) -> None:
    """Shortens a pair in place until both together have at most `max_length` tokens.

    As the original release: tokens go one by one from the end of the list that is longer at
    that moment, from `tokens_b` when both are as long. A short text next to a long one thus
    stays whole; cutting both by the same share would take from the one that has little to give.

    Args:
        tokens_a: the first list; changed.
        tokens_b: the second list; changed.
        max_length: 0 or more.

    Raises:
        ValueError: `max_length` is negative.
    """
    if max_length < 0:
        raise ValueError(f"max_length must be 0 or more. Received: max_length={max_length}")
    length_a, length_b = truncated_lengths(len(tokens_a), len(tokens_b), max_length)
    del tokens_a[int(length_a) :]
    del tokens_b[int(length_b) :]


def truncated_lengths(length_a: Any, length_b: Any, max_length: Any) -> tuple[Any, Any]:
    """How long the texts of a pair are after `truncate_seq_pair`.

    Args:
        length_a: tokens of the first text, a number or an array of them.
        length_b: of the second.
        max_length: of both together.

    Returns:
        The new lengths.
    """
    excess = np.maximum(length_a + length_b - max_length, 0)
    # The longer one gives alone until both are as long, and then they take turns, B first.
    only_longer = np.minimum(np.abs(length_a - length_b), excess)
    in_turns = excess - only_longer
    a_is_longer = length_a > length_b
    from_a = in_turns // 2 + np.where(a_is_longer, only_longer, 0)
    from_b = in_turns - in_turns // 2 + np.where(a_is_longer, 0, only_longer)
    return length_a - from_a, length_b - from_b


def truncate_to_fit(tokens_a: list[str], tokens_b: list[str] | None, max_seq_length: int) -> None:
    """Shortens one text or a pair in place so that `pack` finds room for the special tokens.

    Args:
        tokens_a: the first text; changed.
        tokens_b: the second text, None or empty when there is none; changed.
        max_seq_length: length of the packed sequence; at least 2, or 3 for a pair.

    Raises:
        UserError: not even the special tokens fit.
    """
    require_room(bool(tokens_b), max_seq_length)
    if tokens_b:
        truncate_seq_pair(tokens_a, tokens_b, max_seq_length - 3)
    else:
        del tokens_a[max_seq_length - 2 :]


def require_room(pair: bool, max_seq_length: int) -> None:
    """Refuses a length that has no room for the special tokens of a text, or of a pair.

    Raises:
        UserError: they do not fit.
    """
    special = 3 if pair else 2
    if max_seq_length < special:
        kind, form = ("pair", "[CLS] A [SEP] B [SEP]") if pair else ("text", "[CLS] A [SEP]")
        raise UserError(
            f"max_seq_length={max_seq_length} is too small: the {special} special tokens of a "
            f"{kind} ({form}) do not fit. Pass a larger --max_seq_length, such as 128."
        )


def pack(
    tokens_a: Sequence[str],
    tokens_b: Sequence[str] | None,
    max_seq_length: int,
    tokenizer: Tokenizer,
) -> PackedSequence:
    """Puts one text or a pair into the form that BERT was trained on, and pads it.

    The tokens, their segments and the mask of a pair in 9 places:

        [CLS] is it [SEP] no [SEP]
          0   0  0    0   1    1   0 0 0
          1   1  1    1   1    1   0 0 0

    Args:
        tokens_a: the first text, no longer than the room (see `truncate_to_fit`).
        tokens_b: the second text; without tokens there is no second part, and no second [SEP].
        max_seq_length: length of the results.
        tokenizer: gives the ids.

    Raises:
        ValueError: the tokens and the special tokens are more than `max_seq_length`.
    """
    tokens = ["[CLS]", *tokens_a, "[SEP]"]
    segment_ids = [0] * len(tokens)
    if tokens_b:
        tokens += [*tokens_b, "[SEP]"]
        segment_ids += [1] * (len(tokens_b) + 1)
    padding = [0] * (max_seq_length - len(tokens))
    if len(tokens) > max_seq_length:
        raise ValueError(
            "The tokens must fit into max_seq_length; shorten them before. Received: "
            f"{len(tokens)} tokens with the special ones, max_seq_length={max_seq_length}"
        )
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
    tokenizer: Tokenizer,
) -> InputFeatures:
    """Tokenizes, shortens and packs one example, as the original release.

    Args:
        ex_index: number of the example; the first five are logged, at the level DEBUG.
        example: the example. A `PaddingInputExample` gives zeros throughout.
        label_list: the labels in the order of their ids: strings, integers or a NumPy array of
            them; empty when the label is a number.
        max_seq_length: length of the sequences; at least 2, or 3 for pairs.
        tokenizer: tokenizer of the model's vocabulary.

    Raises:
        UserError: the label is not in `label_list` (or no number, where it is empty), or
            `max_seq_length` has no room for the special tokens.
    """
    if isinstance(example, PaddingInputExample):
        zeros = [0] * max_seq_length
        return InputFeatures(zeros, list(zeros), list(zeros), label_id=0, is_real_example=False)

    label_id = find_label_id(example, label_list)
    packed = pack_example(example, max_seq_length, tokenizer)
    if ex_index < _EXAMPLES_SHOWN:
        _log_example(example, packed, label_list)
    return InputFeatures(packed.input_ids, packed.input_mask, packed.segment_ids, label_id)


def pack_example(example: Any, max_seq_length: int, tokenizer: Tokenizer) -> PackedSequence:
    """Tokenizes, shortens and packs `text_a` and `text_b` of an example."""
    tokens_a = tokenizer.tokenize(example.text_a)
    tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else None
    truncate_to_fit(tokens_a, tokens_b, max_seq_length)
    return pack(tokens_a, tokens_b, max_seq_length, tokenizer)


def convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[Any],
    max_seq_length: int,
    tokenizer: Tokenizer,
) -> list[InputFeatures]:
    """`convert_single_example` for all examples, in their order.

    Raises:
        UserError: as `convert_single_example`.
    """
    return [
        convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer)
        for ex_index, example in enumerate(examples)
    ]


def find_label_id(example: InputExample, label_list: Sequence[Any]) -> int | float:
    """Position of an example's label in the list; the label as a number if the list is empty.

    Raises:
        UserError: the example has no label, or none of the list, or one that is no number.
    """
    if example.label is None:
        raise UserError(f"Example {example.guid} has no label")
    if len(label_list) == 0:
        try:
            return float(str(example.label))
        except ValueError:
            raise UserError(
                f"Label {example.label!r} of example {example.guid} is not a number"
            ) from None
    labels = list(label_list)
    for label in (example.label, str(example.label)):
        if label in labels:
            return labels.index(label)
    raise UserError(
        f"Label {example.label!r} of example {example.guid} is not one of "
        f"{', '.join(map(str, labels))}. Correct the data, or add it to the labels of the task."
    )


def log_examples(
    examples: Sequence[InputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: Tokenizer,
) -> None:
    """Logs the first five examples in tokens and in numbers, at the level DEBUG."""
    if _logger.isEnabledFor(logging.DEBUG):
        for example in examples[:_EXAMPLES_SHOWN]:
            _log_example(example, pack_example(example, max_seq_length, tokenizer), label_list)


def _log_example(example: InputExample, packed: PackedSequence, label_list: Sequence[Any]) -> None:
    label, labels = example.label, list(label_list)
    _logger.debug(
        "Example %s\n  tokens: %s\n  input_ids: %s\n  input_mask: %s\n  segment_ids: %s\n"
        "  label: %s%s",
        example.guid,
        " ".join(packed.tokens),
        " ".join(map(str, packed.input_ids)),
        " ".join(map(str, packed.input_mask)),
        " ".join(map(str, packed.segment_ids)),
        label,
        f" (id = {labels.index(label)})" if label in labels else "",
    )
