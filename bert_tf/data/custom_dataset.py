"""A user's own texts: `run_classifier.py --task_name=tsv`."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.data.cell_values import excerpt, to_text
from bert_tf.data.column_mapping import ColumnMapping, Known, Layout, lay_out
from bert_tf.data.csv_reader import Row
from bert_tf.data.datasets import CLASSIFICATION, REGRESSION, TextDataset
from bert_tf.data.features import InputExample
from bert_tf.data.label_inference import AUTO, PROBLEM_TYPES, LabelParser, count_rows, infer_labels
from bert_tf.data.split_files import FLAGS, NAMES
from bert_tf.data.tables import read_table
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

_GUIDS = {"train": "train", "eval": "dev", "predict": "test"}


class CustomDataset(TextDataset):
    """Files of a user.

    The training file is read at once: it says what the labels are, and so how large the model is.

    Args:
        paths: "train", "eval" or "predict" -> file; those that there are. See
            `split_files.find_files`.
        columns: what stands where, in all files.
        problem_type: one of `label_inference.PROBLEM_TYPES`; "auto" asks the training file. Without
            that, labels stand for a classification.
        labels: in the order of their ids; none to take those of the training file.
        label_separator: between the labels of a text that may have several.
        dev_fraction: in [0, 1): part of the training file that is kept for evaluation where there
            is no file for it. The same rows in every run.

    Raises:
        UserError: the training file cannot be read or is wrong, or labels are not known.
    """

    name = "task tsv"

    def __init__(
        self,
        paths: Mapping[str, str],
        columns: ColumnMapping,
        *,
        problem_type: str = AUTO,
        labels: Sequence[str] | None = None,
        label_separator: str = ",",
        dev_fraction: float = 0.2,
    ) -> None:
        self._paths, self._columns = dict(paths), columns
        self.has_pairs = columns.text_pair is not None
        self._dev_fraction = dev_fraction
        self._examples: dict[str, list[InputExample]] = {}
        given = tuple(label.strip() for label in labels or ())
        _check_arguments(columns, problem_type, given, label_separator, dev_fraction)
        if columns.label is None and not paths.keys() <= {"predict"}:
            raise UserError("--label_column is needed to train and to evaluate")
        self._known = Known(problem_type, given, label_separator)
        if "train" in paths:
            layout = self._lay_out("train")
            cells = [(layout.table.place(row), layout.value(row, "label")) for row in layout.rows]
            self._labels = infer_labels(paths["train"], cells, problem_type, given, label_separator)
            found = self._labels.problem_type, self._labels.labels
            self._known = Known(*found, label_separator, layout)
            self._examples["train"] = self._read(layout, "train")
        elif given or problem_type == REGRESSION:
            kind = CLASSIFICATION if problem_type == AUTO else problem_type
            self._labels = LabelParser(kind, given, label_separator)
            self._known = Known(kind, given, label_separator)
        else:
            raise UserError(
                "There is no training file to take the labels from: call it train.tsv in "
                "--data_dir, or pass --train_file, or --labels"
            )
        self.problem_type, self.labels = self._labels.problem_type, self._labels.labels

    def read(self, split: str) -> list[InputExample]:
        """The examples of a split, in the order of the file; at least one.

        Texts to predict have no label.

        Raises:
            UserError: there is no such split, or its file is not right.
        """
        if split != "predict" and "train" in self._examples and "eval" not in self._paths:
            self._divide()
        if split not in self._examples:
            if split not in self._paths:
                raise UserError(self._absence(split))
            layout = self._lay_out(split)
            self._examples[split] = self._read(layout, split)
            _logger.info("%s: %s", self._paths[split], count_rows(len(layout.rows)))
        return list(self._examples[split])

    def describe(self, split: str) -> str:
        """Path of the split's file."""
        found = self._paths.get(split) or (self._paths.get("train") if split == "eval" else None)
        if found is None:
            raise UserError(self._absence(split))
        return found

    def _absence(self, split: str) -> str:
        if split == "eval" and "train" in self._paths:
            return (
                "There is no file to evaluate on: pass --eval_file, or --dev_fraction=0.2 to keep "
                f"rows of {self._paths['train']} for it"
            )
        name = NAMES[split][0]
        return (
            f"There is no {name} set: call the file {name}.tsv in --data_dir, or pass "
            f"{FLAGS[split]}"
        )

    def _lay_out(self, split: str) -> Layout:
        table = read_table(self._paths[split], self._columns.quoted)
        return lay_out(table, self._columns, split, self._known)

    def _read(self, layout: Layout, split: str) -> list[InputExample]:
        examples = []
        guids: dict[str, str] = {}
        empty: list[str] = []
        for number, row in enumerate(layout.rows):
            place = layout.table.place(row)
            guid = f"{_GUIDS[split]}-{number}"
            if "id" in layout.places:
                guid = _new_id(layout.value(row, "id"), guids, place)
            texts = self._texts(layout, row)
            if not all(text.strip() for text in texts):
                empty.append(place)
            label: Any = None
            if split != "predict":
                label = self._labels.read(layout.value(row, "label"), place)
            pair = texts[1] if len(texts) > 1 else None
            examples.append(InputExample(guid, texts[0], pair, label))
        if empty:
            _logger.warning(
                "%s: %s without a word as text, the first one is %s. The model reads nothing there",
                layout.table.path,
                count_rows(len(empty)),
                empty[0],
            )
        return examples

    def _texts(self, layout: Layout, row: Row) -> list[str]:
        purposes = {"text": "text", "text_pair": "second text"}
        return [
            to_text(layout.value(row, purpose), what, layout.table.place(row))
            for purpose, what in purposes.items()
            if purpose in layout.places
        ]

    def _divide(self) -> None:
        """Keeps some rows of the training file for evaluation, unless that is done or unwanted."""
        if "eval" in self._examples or not self._dev_fraction:
            return
        path, examples = self._paths["train"], self._examples["train"]
        kept = max(1, round(self._dev_fraction * len(examples)))
        if kept >= len(examples):
            raise UserError(
                f"{path}: {count_rows(len(examples))}, too few to keep some for evaluation. Pass "
                "--eval_file, or --dev_fraction=0 to train on all"
            )
        train, held_out = _divided([example.label for example in examples], kept, self.problem_type)
        self._examples["train"] = [examples[row] for row in train]
        self._examples["eval"] = [examples[row] for row in held_out]
        _logger.info(
            "no dev set: %s of the %s of %s are kept for evaluation (--dev_fraction=%g), %s to "
            "train on",
            f"{len(held_out):,}",
            count_rows(len(examples)),
            path,
            self._dev_fraction,
            f"{len(train):,}",
        )


def _check_arguments(
    columns: ColumnMapping,
    problem_type: str,
    labels: Sequence[str],
    separator: str,
    fraction: float,
) -> None:
    choices = ("auto", "yes", "no")
    for flag, value, allowed in (
        ("--has_header", columns.has_header, choices),
        ("--quoted", columns.quoted, choices),
        ("--problem_type", problem_type, PROBLEM_TYPES),
    ):
        if value not in allowed:
            raise UserError(f"{flag}={value}: pass one of {', '.join(allowed)}")
    if not separator:
        raise UserError("--label_separator is empty: pass what stands between labels")
    if not 0 <= fraction < 1:
        raise UserError(f"--dev_fraction={fraction:g}: pass a number from 0 up to, not with, 1")
    if problem_type == REGRESSION and labels:
        raise UserError("--problem_type=regression has numbers and no labels: leave out --labels")
    for number, label in enumerate(labels):
        if not label:
            raise UserError(f"--labels: label {number + 1} is empty. Remove it")
        if label in labels[:number]:
            raise UserError(f"--labels: {excerpt(label)} stands there twice. Remove one")


def _new_id(value: Any, guids: dict[str, str], place: str) -> str:
    """The id of a row, which no row before it has."""
    guid = to_text(value, "id", place)
    if not guid.strip():
        raise UserError(f"{place}: the id is empty. Give the row one, or leave out --id_column")
    other = guids.setdefault(guid, place)
    if other != place:
        raise UserError(
            f"{place}: id {excerpt(guid)} stands in {other}, too. Correct one of them, or leave "
            "out --id_column"
        )
    return guid


def _divided(labels: Sequence[Any], kept: int, problem_type: str) -> tuple[list[int], list[int]]:
    """Numbers of the rows to train on, and of those that are kept; both in order.

    The rows that are kept have labels as often as all of them, where there are enough.
    """
    # Takes a second; most runs have a file to evaluate on.
    from sklearn.model_selection import train_test_split

    even = None
    if problem_type == CLASSIFICATION:
        counts = Counter(labels)
        if min(counts.values()) > 1 and len(counts) <= min(kept, len(labels) - kept):
            even = labels
    train, held_out = train_test_split(
        range(len(labels)), test_size=kept, random_state=0, stratify=even
    )
    return sorted(train), sorted(held_out)
