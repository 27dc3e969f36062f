"""Python API of the original BERT release's `run_classifier.py`."""

import csv
import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_tf import files, tokenization
from bert_tf.data import features as _features
from bert_tf.data.tables import Row
from bert_tf.removed_api import error_stubs
from bert_tf.tasks.classification import glue

globals().update(error_stubs("run_classifier"))

InputExample, PaddingInputExample = _features.InputExample, _features.PaddingInputExample
InputFeatures = _features.InputFeatures
convert_single_example = _features.convert_single_example
convert_examples_to_features = _features.convert_examples_to_features


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
        rows = (Row(f"{split.file}:{number}", cells) for number, cells in enumerate(lines, 1))
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
    from bert_tf.data.feature_specs import Feature, sequence_features
    from bert_tf.data.records import write_records

    def rows() -> Iterable[dict[str, np.ndarray]]:
        for index, example in enumerate(examples):
            features = convert_single_example(index, example, label_list, max_seq_length, tokenizer)
            row = {name: np.array([value]) for name, value in vars(features).items()}
            row["label_ids"] = row.pop("label_id")
            yield row

    scalars = (Feature("label_ids"), Feature("is_real_example"))
    write_records(output_file, (*sequence_features(max_seq_length), *scalars), rows())
