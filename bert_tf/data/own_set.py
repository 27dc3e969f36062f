"""A user's own texts: `run_classifier.py --task_name=tsv`. Files are told apart by their names."""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import files
from bert_tf.data.features import InputExample
from bert_tf.data.own_columns import Columns, Known, Layout, lay_out
from bert_tf.data.own_labels import AUTO, PROBLEM_TYPES, LabelReader, count_rows, discover
from bert_tf.data.tables import Row, beginning, read_table, text_of
from bert_tf.data.text_sets import CLASSIFICATION, REGRESSION, TextSet
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

_NAMES = {
    "train": ("train",),
    "eval": ("dev", "valid", "validation", "eval"),
    "predict": ("test",),
}
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson", ".txt")
_FLAGS = {"train": "--train_file", "eval": "--eval_file", "predict": "--predict_file"}
# Files that come with data and are none.
_NO_DATA = ("readme", "license", "licence")

_GUIDS = {"train": "train", "eval": "dev", "predict": "test"}


class OwnSet(TextSet):
    """Files of a user.

    The training file is read at once: it says what the labels are, and so how large the model is.

    Args:
        paths: "train", "eval" or "predict" -> file; those that there are. See `find_files`.
        columns: what stands where, in all files.
        problem_type: one of `own_labels.PROBLEM_TYPES`; "auto" asks the training file. Without
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
        columns: Columns,
        *,
        problem_type: str = AUTO,
        labels: Sequence[str] | None = None,
        label_separator: str = ",",
        dev_fraction: float = 0.2,
    ) -> None:
        self._paths, self._columns = dict(paths), columns
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
            self._labels = discover(paths["train"], cells, problem_type, given, label_separator)
            found = self._labels.problem_type, self._labels.labels
            self._known = Known(*found, label_separator, layout)
            self._examples["train"] = self._read(layout, "train")
        elif given or problem_type == REGRESSION:
            kind = CLASSIFICATION if problem_type == AUTO else problem_type
            self._labels = LabelReader(kind, given, label_separator)
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
        name = _NAMES[split][0]
        return (
            f"There is no {name} set: call the file {name}.tsv in --data_dir, or pass "
            f"{_FLAGS[split]}"
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
            text_of(layout.value(row, purpose), what, layout.table.place(row))
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
    columns: Columns, problem_type: str, labels: Sequence[str], separator: str, fraction: float
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
            raise UserError(f"--labels: {beginning(label)} stands there twice. Remove one")


def _new_id(value: Any, guids: dict[str, str], place: str) -> str:
    """The id of a row, which no row before it has."""
    guid = text_of(value, "id", place)
    if not guid.strip():
        raise UserError(f"{place}: the id is empty. Give the row one, or leave out --id_column")
    other = guids.setdefault(guid, place)
    if other != place:
        raise UserError(
            f"{place}: id {beginning(guid)} stands in {other}, too. Correct one of them, or leave "
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


def find_files(
    data_dir: str,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
) -> dict[str, str]:
    """Finds a user's files.

    A file that is named is looked for as it is, then in the folder. Otherwise it is called `train`,
    `dev` (`valid`, `validation`, `eval`) or `test`, with an ending that `tables` knows or `.txt`,
    and `.gz` where it is compressed. A file that is alone in the folder is the training file.

    Args:
        data_dir: the folder; empty if all files are named.
        train_file: what is named, or None.
        eval_file: the same.
        predict_file: the same.

    Returns:
        Split -> path, for those that are found.

    Raises:
        UserError: there is no such folder or no such file, or two are called so.
    """
    named = {"train": train_file, "eval": eval_file, "predict": predict_file}
    explicit = {
        split: _named_file(name, data_dir, _FLAGS[split]) for split, name in named.items() if name
    }
    if not data_dir:
        if not explicit:
            raise UserError("Pass --data_dir, the folder with the texts, or --train_file")
        return explicit
    if not files.is_dir(data_dir):
        if files.exists(data_dir):
            raise UserError(f"--data_dir={data_dir} is a file. Pass it as --train_file")
        raise UserError(
            f"There is no folder --data_dir={data_dir} ({files.describe_absence(data_dir)})"
        )
    names = files.list_dir(data_dir)
    found = dict(explicit)
    for split in _NAMES:
        if split not in found and (name := _only_one(names, split, data_dir)):
            found[split] = os.path.join(data_dir, name)
    if not found and (name := _alone(names, data_dir)):
        found["train"] = os.path.join(data_dir, name)
        _logger.info("%s: the only file of its folder, so it is the training file", found["train"])
    return found


def _named_file(name: str, data_dir: str, flag: str) -> str:
    for path in (name, os.path.join(data_dir, name)):
        if files.exists(path):
            return path
    nor = f" nor in {data_dir}" if data_dir and not os.path.isabs(name) else ""
    where = files.describe_absence(os.path.join(data_dir, name))
    raise UserError(f"{flag}={name}: no such file here{nor} ({where})")


def _only_one(names: Sequence[str], split: str, data_dir: str) -> str | None:
    """The file of a folder that is called as the split."""
    possible = {stem + end + gz for stem in _NAMES[split] for end in _ENDINGS for gz in ("", ".gz")}
    found = [name for name in names if name.lower() in possible]
    if len(found) > 1:
        raise UserError(
            f"{data_dir} has {' and '.join(found[:3])}. Pass the one to read as {_FLAGS[split]}"
        )
    return found[0] if found else None


def _alone(names: Sequence[str], data_dir: str) -> str | None:
    """The file that is alone in a folder, hidden ones and those about the data set aside."""
    found = [
        name
        for name in names
        if not name.lower().startswith((".", *_NO_DATA))
        and not name.lower().endswith(".md")
        and not files.is_dir(os.path.join(data_dir, name))
    ]
    return found[0] if len(found) == 1 else None
