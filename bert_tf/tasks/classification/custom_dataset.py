"""A user's own tables as a dataset: `run_classifier.py --task_name=tsv`."""

import dataclasses
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.data.cell_values import counted, excerpt, to_text
from bert_tf.data.features import InputExample
from bert_tf.data.split_files import FLAGS, NAMES
from bert_tf.data.tables import read_table
from bert_tf.errors import UserError
from bert_tf.tasks.classification.column_mapping import (
    cell,
    columns_of_split,
    find_header,
    find_positions,
    warn_about_headers,
)
from bert_tf.tasks.classification.datasets import (
    CLASSIFICATION,
    REGRESSION,
    SPLIT_NAMES,
    TextDataset,
)
from bert_tf.tasks.classification.label_inference import AUTO, LabelParser, infer_labels
from bert_tf.tasks.classification.options import ClassifierOptions

_logger = logging.getLogger(__name__)

_TEXTS = {"text": "text", "text_pair": "second text"}


class CustomDataset(TextDataset):
    """A dataset in table files of a user.

    The training file is read on construction, since the model's size depends on its labels. With
    `--teacher_weight=1`, its labels are not read, unless rows are held out for evaluation.

    Args:
        paths: split -> file, for the splits that exist. See `split_files.find_files`.
        options: columns, and how to read them. Without a training file, problem type "auto" means
            "classification".
        labels: in the order of their ids; empty to use those of the training file, or for numbers.

    Raises:
        UserError: the training file is invalid, or the labels are unknown.
    """

    name = "task tsv"

    def __init__(
        self,
        paths: Mapping[str, str],
        options: ClassifierOptions,
        labels: Sequence[str] = (),
    ) -> None:
        self._paths, self._options = paths, options
        self.has_pairs = options.text_pair_column is not None
        self.holds_out = "eval" not in paths and "train" in paths
        self._examples: dict[str, list[InputExample]] = {}
        self._training_header: list[str] | None = None
        holds_out_rows = self.holds_out and options.dev_fraction
        self.is_unlabeled = options.ignores_labels and not holds_out_rows
        labels = tuple(label.strip() for label in labels)
        problem_type = options.problem_type
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

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split (at least one); those for prediction have no labels."""
        holds_out = self.holds_out and self._options.dev_fraction and "eval" not in self._examples
        if split != "predict" and holds_out:
            self._hold_out_dev_set()
        if split not in self._examples:
            path = self._path(split)
            self._examples[split] = self._load(split)
            _logger.info("%s: %s", path, counted(len(self._examples[split]), "row"))
        return list(self._examples[split])

    def describe(self, split: str) -> str:
        """Returns the path of the split's file."""
        return self._path("train" if split == "eval" and self.holds_out else split)

    def _path(self, split: str) -> str:
        if split in self._paths:
            return self._paths[split]
        if split == "eval" and "train" in self._paths:
            raise UserError(
                "There is no file to evaluate on: pass --eval_file, or --dev_fraction=0.2"
            )
        name = NAMES[split][0]
        raise UserError(f"There is no {name} set: pass {FLAGS[split]}, or name a file {name}.tsv")

    def _load(self, split: str) -> list[InputExample]:
        """Reads the file of a split; infers labels from the training file."""
        path = self._paths[split]
        rows = read_table(path, self._options.quoted)
        if not rows:
            raise UserError(f"{path} is empty")
        is_unlabeled = self.is_unlabeled and split == "train"
        columns_as = "predict" if is_unlabeled else split
        header = find_header(
            path, rows, self._options, columns_as, self._parser, self._training_header
        )
        columns = columns_of_split(self._options, columns_as)
        positions = find_positions(path, rows[0], columns, header)
        warn_about_headers(rows, columns, header, self._training_header or [])
        if header:
            del rows[0]
        if not rows:
            raise UserError(f"{path} has column names, but no rows")
        places = [row.place for row in rows]
        values = {
            purpose: [cell(row, purpose, position) for row in rows]
            for purpose, position in positions.items()
        }
        if self._options.quoted == AUTO:
            _warn_about_quotes(path, values)
        if split == "train":
            self._training_header = header
        if split == "train" and not is_unlabeled:
            self._parser = infer_labels(path, places, values["label"], self._parser)
        return self._to_examples(split, places, values)

    def _to_examples(
        self, split: str, places: Sequence[str], values: Mapping[str, Sequence[Any]]
    ) -> list[InputExample]:
        guids = [f"{SPLIT_NAMES[split]}-{row}" for row in range(len(places))]
        if "id" in values:
            guids = _read_ids(values["id"], places)
        placeholder = self._parser.placeholder if split == "train" else None
        examples, empty = [], []
        for row, place in enumerate(places):
            texts = [
                to_text(values[purpose][row], what, place)
                for purpose, what in _TEXTS.items()
                if purpose in values
            ]
            if not all(text.strip() for text in texts):
                empty.append(place)
            label = placeholder
            if "label" in values:
                label = self._parser.parse(values["label"][row], place)
            examples.append(InputExample(guids[row], *texts, label=label))
        if empty:
            message = "%s: %s with an empty text, the first one is %s"
            _logger.warning(message, self._paths[split], counted(len(empty), "row"), empty[0])
        return examples

    def _hold_out_dev_set(self) -> None:
        path, examples = self._paths["train"], self._examples["train"]
        size = max(1, round(self._options.dev_fraction * len(examples)))
        rows = counted(len(examples), "row")
        if size >= len(examples):
            raise UserError(
                f"{path}: {rows}, too few to hold some out. Pass --eval_file or --dev_fraction=0"
            )
        train, dev = _split_rows([example.label for example in examples], size, self.problem_type)
        self._examples["train"] = [examples[row] for row in train]
        self._examples["eval"] = [examples[row] for row in dev]
        summary = f"{len(dev):,} of the {rows} of {path} are held out for evaluation"
        message = "no dev set: %s (--dev_fraction=%g), %s to train on"
        _logger.info(message, summary, self._options.dev_fraction, f"{len(train):,}")


def _check_labels(problem_type: str, labels: Sequence[str]) -> None:
    if problem_type == REGRESSION and labels:
        raise UserError("--problem_type=regression uses numbers, not labels: omit --labels")
    for number, label in enumerate(labels):
        if not label:
            raise UserError(f"--labels: label {number + 1} is empty. Remove it")
        if label in labels[:number]:
            raise UserError(f"--labels: duplicate label {excerpt(label)}. Remove one")


def _warn_about_quotes(path: str, values: Mapping[str, Sequence[Any]]) -> None:
    for purpose, cells in values.items():
        if len(cells) > 1 and all(re.fullmatch(r'\s*".*"\s*', str(value)) for value in cells):
            message = "%s: each %s is in quotes, which stay in it. --quoted=yes removes them"
            _logger.warning(message, path, purpose)
            return


def _read_ids(values: Sequence[Any], places: Sequence[str]) -> list[str]:
    ids: dict[str, str] = {}
    for value, place in zip(values, places, strict=True):
        name = to_text(value, "id", place)
        if not name.strip():
            raise UserError(f"{place}: the id is empty. Add one, or omit --id_column")
        if name in ids:
            raise UserError(f"{place}: duplicate id {excerpt(name)}, as in {ids[name]}. Correct it")
        ids[name] = place
    return list(ids)


def _split_rows(
    labels: Sequence[Any], dev_size: int, problem_type: str
) -> tuple[list[int], list[int]]:
    """Splits rows into training and dev rows, stratified if there are enough."""
    # Imported lazily: it takes a second, and most runs have an evaluation file.
    from sklearn.model_selection import train_test_split

    # Only classes have enough rows with the same value.
    counts = Counter(labels if problem_type == CLASSIFICATION else range(len(labels)))
    enough = min(counts.values()) > 1 and len(counts) <= min(dev_size, len(labels) - dev_size)
    settings = {"test_size": dev_size, "random_state": 0, "stratify": labels if enough else None}
    train, dev = train_test_split(range(len(labels)), **settings)
    return sorted(train), sorted(dev)
