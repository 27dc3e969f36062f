"""Python API of the original BERT release's `run_classifier.py`."""

import csv
import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_tf import tokenization
from bert_tf.base import files
from bert_tf.base.errors import Place
from bert_tf.base.foreign_names import error_stubs
from bert_tf.data.features import NUM_LOGGED, InputExample, find_label_id, log_rows, pack_example
from bert_tf.tables.read import Row
from bert_tf.tasks.classification import glue

globals().update(error_stubs("run_classifier"))


class PaddingInputExample:
    """Pads the last batch on a TPU, where all batches must have the same size.

    As in the original, this is a class instead of None, so that None in a list remains an error.
    """


@dataclasses.dataclass
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
    tokenizer: tokenization.FullTokenizer,
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


def convert_examples_to_features(
    examples: Sequence[InputExample | PaddingInputExample],
    label_list: Sequence[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
) -> list[InputFeatures]:
    """Converts examples with `convert_single_example`, in order."""
    return [
        convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer)
        for ex_index, example in enumerate(examples)
    ]


class DataProcessor:
    """Base class for readers of data sets."""

    def get_labels(self, *data_dir: str) -> Any:
        """Override this method, and `get_<split>_examples` for each split of the data set."""
        raise NotImplementedError

    get_train_examples = get_dev_examples = get_test_examples = get_labels

    @classmethod
    def _read_tsv(cls, input_file: str, quotechar: str | None = None) -> list[list[str]]:
        return list(csv.reader(files.read_lines(input_file), delimiter="\t", quotechar=quotechar))


class ColaProcessor(DataProcessor):
    """Reader of CoLA, and base class for the other data sets."""

    _task = glue.TASKS["cola"]
    # Language of the examples, used for XNLI only; programs may change it.
    language = "zh"

    def get_labels(self) -> list[str]:
        """Returns the labels in the order of their ids."""
        return list(self._task.labels)

    def _read(self, split_name: str, data_dir: str) -> list[InputExample]:
        if split_name not in self._task.splits:
            raise NotImplementedError(f"{self._task.name} has no {split_name} set")
        split = self._task.splits[split_name]
        path = os.path.join(data_dir, split.file.replace(".zh.", f".{self.language}."))
        return self._create_examples(self._read_tsv(path), split.guid_prefix)

    get_train_examples = functools.partialmethod(_read, "train")
    get_dev_examples = functools.partialmethod(_read, "dev")
    get_test_examples = functools.partialmethod(_read, "test")

    def _create_examples(self, lines: Iterable[list[str]], set_type: str) -> list[InputExample]:
        split = self._task.splits[set_type if set_type in self._task.splits else "dev"]
        where = split.where and (split.where[0], self.language)
        split = dataclasses.replace(split, guid_prefix=set_type, where=where)
        rows = (Row(Place(split.file, number), cells) for number, cells in enumerate(lines, 1))
        return list(glue.examples(self._task, split, rows))


class MnliProcessor(ColaProcessor):
    """Reader of MNLI (matched)."""

    _task = glue.TASKS["mnli"]


class MrpcProcessor(ColaProcessor):
    """Reader of MRPC."""

    _task = glue.TASKS["mrpc"]


class XnliProcessor(ColaProcessor):
    """Reader of XNLI, for the examples in the language `language`."""

    _task = glue.TASKS["xnli"]


def file_based_convert_examples_to_features(
    examples: Sequence[Any],
    label_list: Sequence[Any],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    output_file: str,
) -> None:
    """Writes the features of examples to a TFRecord file."""
    from bert_tf.data.features import Feature, sequence_features
    from bert_tf.data.records import write_records

    def rows() -> Iterable[dict[str, np.ndarray]]:
        for index, example in enumerate(examples):
            features = convert_single_example(index, example, label_list, max_seq_length, tokenizer)
            row = {name: np.array([value]) for name, value in vars(features).items()}
            row["label_ids"] = row.pop("label_id")
            yield row

    scalars = (Feature("label_ids"), Feature("is_real_example"))
    write_records(output_file, (*sequence_features(max_seq_length), *scalars), rows())
