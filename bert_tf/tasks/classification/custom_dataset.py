"""A user's own tables as a dataset: `run_classifier.py --task_name=tsv`."""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bert_tf.data.cell_values import counted, excerpt, to_text
from bert_tf.data.columns import cell, find_positions
from bert_tf.data.features import InputExample
from bert_tf.data.tables import read_table
from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.tasks.classification import column_mapping
from bert_tf.tasks.classification.datasets import SPLIT_NAMES, TextDataset
from bert_tf.tasks.classification.label_inference import LabelParser, infer_labels
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, REGRESSION, ClassifierOptions

# Entry of `run.json` with the column names in the training file, separated by tabs.
HEADER = "header"
# Entry with `TrainingTable.num_columns`, if it is not 0.
NUM_COLUMNS = "num_columns"
_UNKNOWN = column_mapping.TrainingTable()
# Purpose of a text column -> its name in messages.
_TEXT_NAMES = {"text": "text", "text_pair": "second text"}


class CustomDataset(TextDataset):
    """A dataset in a user's table files.

    If there is a training file, its labels determine the model's outputs, so it is read first. With
    `--teacher_weight=1`, its labels are not read unless it also provides the dev set.

    Args:
        paths: split -> file, for the splits that exist. See `split_files.find_files`.
        options: options for tables.
        labels: names of the labels in the order of their ids; empty to infer them, or for numbers.
        training: what is known about the training file of an earlier run.
        problem_type: overrides that of the options. "auto" infers it from the training file;
            without one, it is "classification".

    Raises:
        UserError: the training file is invalid, or the labels are unknown.
    """

    name = "task tsv"

    def __init__(
        self,
        paths: Mapping[str, str],
        options: ClassifierOptions,
        labels: Sequence[str] = (),
        training: column_mapping.TrainingTable = _UNKNOWN,
        problem_type: str | None = None,
    ) -> None:
        self._paths, self._options = paths, options
        self.has_pairs = options.text_pair_column is not None
        has_training_file_only = "eval" not in paths and "train" in paths
        self._holds_out_rows = has_training_file_only and bool(options.dev_fraction)
        self._examples: dict[str, list[InputExample]] = {}
        self._training = training
        self.is_unlabeled = options.ignores_labels and not self._holds_out_rows
        labels, problem_type = tuple(labels), problem_type or options.problem_type
        _check_labels(problem_type, labels)
        unlabeled = {"predict", "train"} if self.is_unlabeled else {"predict"}
        if options.label_column is None and not paths.keys() <= unlabeled:
            raise UserError("--do_train and --do_eval need --label_column")
        if not options.label_separator:
            raise UserError("--label_separator must not be empty")
        self._parser = LabelParser(problem_type, labels, options.label_separator)
        if "train" in paths and not self.is_unlabeled:
            self._examples["train"] = self._load("train")
        elif not labels and problem_type != REGRESSION:
            raise UserError("There is no training file to take the labels from: pass --labels")
        elif problem_type == AUTO:
            self._parser = dataclasses.replace(self._parser, problem_type=CLASSIFICATION)
        self.problem_type, self.labels = self._parser.problem_type, self._parser.labels
        if "train" in paths and self.is_unlabeled:
            self._examples["train"] = self._load("train")

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split, at least one; examples for prediction have no labels."""
        if split != "predict" and self._holds_out_rows and "eval" not in self._examples:
            self._hold_out_dev_set()
        if split not in self._examples:
            self._examples[split] = self._load(split)
            log.info("%s: %s", self._paths[split], counted(len(self._examples[split]), "row"))
        return list(self._examples[split])

    def describe(self, split: str) -> str:
        """Returns the path of the split's file."""
        return self._paths["train" if split == "eval" and self._holds_out_rows else split]

    def _load(self, split: str) -> list[InputExample]:
        """Reads the file of a split; if it is the training file, also infers the labels."""
        path = self._paths[split]
        rows = list(read_table(path, self._options.quoted))
        if not rows:
            raise UserError(f"{path} is empty")
        is_unlabeled = self.is_unlabeled and split == "train"
        columns_as = column_mapping.UNLABELED if is_unlabeled else split
        header = column_mapping.find_header(
            path, rows, self._options, columns_as, self._parser, self._training.header
        )
        columns = column_mapping.columns_of_split(self._options, columns_as)
        positions = find_positions(path, rows[0], columns, header)
        column_mapping.warn_about_headers(rows, columns, header, self._training.header or [])
        self._training.warn_about_columns(path, rows[0], header, self._options)
        if header:
            del rows[0]
        if not rows:
            raise UserError(f"{path} has column names, but no rows below them")
        places = [row.place for row in rows]
        values = {
            purpose: [cell(row, purpose, position) for row in rows]
            for purpose, position in positions.items()
        }
        if self._options.quoted == AUTO:
            _warn_about_quotes(path, values)
        if split == "train":
            width = column_mapping.comparable_width(rows[0], columns, positions)
            self._training = self._training._replace(header=header, num_columns=width)
            self.entries = {HEADER: "\t".join(header)}
            if width:
                self.entries[NUM_COLUMNS] = str(width)
        if split == "train" and not is_unlabeled:
            self._parser = infer_labels(path, places, values["label"], self._parser)
        return self._to_examples(split, places, values)

    def _to_examples(
        self, split: str, places: Sequence[str], values: Mapping[str, Sequence[Any]]
    ) -> list[InputExample]:
        guids = [f"{SPLIT_NAMES[split]}-{index}" for index in range(len(places))]
        if "id" in values:
            guids = _read_ids(values["id"], places)
        placeholder = self._parser.placeholder if split == "train" else None
        examples, places_of_empty_texts = [], []
        for index, place in enumerate(places):
            texts = [
                to_text(values[purpose][index], name, place)
                for purpose, name in _TEXT_NAMES.items()
                if purpose in values
            ]
            if not all(text.strip() for text in texts):
                places_of_empty_texts.append(place)
            label = placeholder
            if "label" in values:
                label = self._parser.parse(values["label"][index], place)
            examples.append(InputExample(guids[index], *texts, label=label))
        if places_of_empty_texts:
            count = counted(len(places_of_empty_texts), "row")
            message = "%s: %s with an empty text, the first at %s"
            log.warning(message, self._paths[split], count, places_of_empty_texts[0])
        return examples

    def _hold_out_dev_set(self) -> None:
        path, examples = self._paths["train"], self._examples["train"]
        dev_size = max(1, round(self._options.dev_fraction * len(examples)))
        row_count = counted(len(examples), "row")
        if dev_size >= len(examples):
            problem = f"{path} has only {row_count}, too few to hold out a dev set"
            raise UserError(f"{problem}. Pass --eval_file or --dev_fraction=0")
        labels = [example.label for example in examples]
        train_rows, dev_rows = _split_rows(labels, dev_size, self.problem_type)
        self._examples["train"] = [examples[row] for row in train_rows]
        self._examples["eval"] = [examples[row] for row in dev_rows]
        summary = f"{len(dev_rows):,} of the {row_count} of {path} are held out for evaluation"
        message = "no dev set: %s (--dev_fraction=%g), %s to train on"
        log.info(message, summary, self._options.dev_fraction, f"{len(train_rows):,}")


def _check_labels(problem_type: str, labels: Sequence[str]) -> None:
    if problem_type == REGRESSION and labels:
        raise UserError("--problem_type=regression uses numbers, not labels: omit --labels")
    for index, label in enumerate(labels):
        if not label:
            raise UserError(f"--labels: label {index + 1} is empty. Remove it")
        if label in labels[:index]:
            raise UserError(f"--labels: duplicate label {excerpt(label)}. Remove one")


def _warn_about_quotes(path: str, values: Mapping[str, Sequence[Any]]) -> None:
    for purpose, cells in values.items():
        if len(cells) > 1 and all(re.fullmatch(r'\s*".*"\s*', str(value)) for value in cells):
            message = "%s: each %s is in quotes, which are kept. Pass --quoted=yes to remove them"
            log.warning(message, path, purpose)
            return
        unpaired = [str(value).strip() for value in cells if str(value).count('"') % 2]
        if any(a[0] == '"' and b[-1] == '"' for a, b in pairwise(unpaired)):
            message = "%s: a %s starts with a quote, and a later row ends with one"
            advice = "If quotes enclose texts of several lines, pass --quoted=yes"
            log.warning(f"{message}. {advice}", path, purpose)
            return


def _read_ids(values: Sequence[Any], places: Sequence[str]) -> list[str]:
    place_of_id: dict[str, str] = {}
    for value, place in zip(values, places, strict=True):
        id_ = to_text(value, "id", place)
        if not id_.strip():
            raise UserError(f"{place}: the id is empty. Add one, or omit --id_column")
        if id_ in place_of_id:
            duplicate = f"{place}: duplicate id {excerpt(id_)}, also at {place_of_id[id_]}"
            raise UserError(f"{duplicate}. Make ids unique, or omit --id_column")
        place_of_id[id_] = place
    return list(place_of_id)


def _split_rows(
    labels: Sequence[Any], dev_size: int, problem_type: str
) -> tuple[list[int], list[int]]:
    """Splits row indices into training and dev rows, stratified by class if possible."""
    # Imported lazily: it takes a second, and most runs have an evaluation file.
    from sklearn.model_selection import train_test_split

    # Stratification needs at least two rows of each class, and a row of each class on both sides.
    # Numbers and label sets repeat too rarely: count each row as a class, which disables it.
    counts = Counter(labels if problem_type == CLASSIFICATION else range(len(labels)))
    stratify = min(counts.values()) > 1 and len(counts) <= min(dev_size, len(labels) - dev_size)
    settings = {"test_size": dev_size, "random_state": 0, "stratify": labels if stratify else None}
    train_rows, dev_rows = train_test_split(range(len(labels)), **settings)
    return sorted(train_rows), sorted(dev_rows)
