"""Writes texts and labels of a Python program to JSON lines for the scripts, and checks them."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.api.text_inputs import items_of
from bert_tf.base.errors import Input, Place, UserError, Words, warn
from bert_tf.tables.columns import to_text


class RowWords(Words):
    """Words for Python: flags have no dashes, and rows have numbers instead of lines."""

    def __init__(self, files: Iterable["Rows"]) -> None:
        self._units = {rows.path: rows.unit for rows in files}

    def place(self, place: Place) -> str:
        """Returns the name of a place, such as "text 3"; rows are counted from 0."""
        unit = self._units.get(place.file)
        if unit is None:
            return super().place(place)
        return f"{unit} {place.line - 1}" if place.line else f"{unit}s"

    def text(self, text: str) -> str:
        """Writes `--name` as `name`, but not in a command."""
        return text if ".py" in text else re.sub(r"(?<!\S)--(?=[a-z])", "", text)


LIST_TYPES = (list, tuple, set, frozenset, np.ndarray, Mapping)
_ABSENT = object()


class Rows:
    """A file that `fit` writes for a script, and what is known about its rows.

    Args:
        path: path of the file.
        unit: what a row is called in messages.

    Attributes:
        place: the row that is being written, such as "text 3" in messages; counted from 0.
        kinds: kinds of texts and labels in the rows.
        names: name of a label, as in `labels.txt` -> the label as it was passed.
        columns: names of the columns of the texts; [] if the texts are not a table.
    """

    def __init__(self, path: str, unit: str = "text") -> None:
        self.path, self.unit, self.place = path, unit, Input(-1, unit)
        self.kinds: set[str] = set()
        self.names: dict[str, Any] = {}
        self.columns: list[str] = []

    def write(
        self, texts: Any, labels: Any, to_row: Callable[[Any, Any, "Rows"], Mapping[str, Any]]
    ) -> None:
        """Writes a line for each text and its label, and reads them one at a time.

        Raises a UserError if there is no text, or if the numbers of texts and labels differ.
        """
        self.columns = column_names(texts)
        for problem in check_order(texts, labels):
            warn(problem, at=f"{self.unit}s")
        items = text_items(texts), label_items(labels)
        with open(self.path, "w", encoding="utf-8") as file:
            for index, pair in enumerate(itertools.zip_longest(*items, fillvalue=_ABSENT)):
                self.place = Input(index, self.unit)
                if any(item is _ABSENT for item in pair):
                    raise UserError(f"Texts and labels differ in number: one has only {index}")
                file.write(json.dumps(to_row(*pair, self), default=self._plain) + "\n")
        if self.place.index < 0:
            raise UserError(f"There are no {self.unit}s")

    def class_names(self, labels: Any) -> list[str]:
        """Returns the names of all labels of a model, as the user passes them."""
        check_labels(self.names, labels := [*labels])
        return [self.class_name(label) for label in labels]

    def _plain(self, value: Any) -> Any:
        """Converts a value that JSON cannot represent; missing values of pandas become None."""
        if isinstance(value, np.generic | np.ndarray) and not isinstance(value, bytes):
            return value.tolist()
        if isinstance(value, set | frozenset):
            return list(value)
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            return None
        problem = f"a value of type {type(value).__name__}: {value!r:.60}"
        raise UserError(problem, at=self.place, fix="Convert it to a string or a number")

    def class_name(self, label: Any) -> str:
        """Returns the name of a label, and adds the label to `names`."""
        value = label if isinstance(label, str | int | float) else self._plain(label)
        if isinstance(value, float) and value % 1 > 0:
            advice = "For numbers, use TextRegressor"
            raise UserError(f"the label is {label}", at=self.place, fix=advice)
        name = to_text(value, "label", self.place).strip()
        if (other := self.names.setdefault(name, label)) != label:
            raise UserError(f"The labels {other!r} and {label!r} have the same name")
        return name


def text_items(texts: Any) -> Iterator[Any]:
    """Yields texts; raises a UserError for a table with more than two columns."""
    if (count := len(getattr(texts, "columns", ()))) > 2:
        raise UserError(f"The table has {count} columns: pass one or two, such as frame['text']")
    if isinstance(texts, tuple) and [*map(type, texts)] == [str, str]:
        raise UserError("Is this a pair, or two texts? Pass a list: [(a, b)] or [a, b]")
    return items_of(texts, "texts")


def label_items(labels: Any, names: Sequence[str] = ()) -> Iterator[Any]:
    """Yields labels; each row of a table as a dict, column name -> label.

    `names` are the columns of an array, which has no names; by default, they are numbered from 0.
    """
    labels = to_dense(labels)
    shape = getattr(labels, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        yield from items_of(labels, "labels")
        return
    columns = getattr(labels, "columns", names if len(names) else range(shape[1]))
    if len(columns) != shape[1]:
        raise UserError(f"The labels have {shape[1]} columns, but the model has {len(columns)}")
    names = [str(name).strip() for name in columns]
    yield from (dict(zip(names, row, strict=True)) for row in items_of(labels))


def check_labels(labels: Mapping[str, Any], classes: Sequence[Any]) -> None:
    """Raises a UserError if labels (name -> label) and a model's classes differ in type."""
    of_model = {str(x).strip(): x for x in classes}
    for name in sorted(labels.keys() & of_model):
        label, known = (np.asarray(x).item() for x in (labels[name], of_model[name]))
        if type(known) is not type(label):
            kind, used = type(known).__name__, type(label).__name__
            problem = f"Labels of this model have the type {kind}, such as {known!r}, not {used}"
            raise UserError(problem)


def check_true_labels(labels: Sequence[Any], classes: Sequence[Any]) -> Iterator[str]:
    """Checks the types of the labels for `score`; yields what `lint.unseen` finds."""
    check_labels({str(x).strip(): x for x in labels}, classes)
    return lint.unseen(labels, classes)


def check_order(texts: Any, labels: Any) -> Iterator[str]:
    """Yields a sentence if two pandas objects have the same index in a different order."""
    indexes = [[*x.index] for x in (texts, labels) if hasattr(x, "iloc")]
    if len(indexes) == 2 and indexes[0] != indexes[1] and {*indexes[0]} == {*indexes[1]}:
        yield "texts and labels are paired by position, but their indexes differ in order"


def column_names(texts: Any) -> list[str]:
    """Returns a table's column names, as in `feature_names_in_`; [] unless all are strings."""
    names = [*getattr(texts, "columns", ())]
    return names if all(isinstance(name, str) for name in names) else []


def require_order(names: Sequence[str], trained: Sequence[str]) -> None:
    """Raises a UserError if a table has the columns of the training data in a different order."""
    if [*names] != [*trained] and sorted(names) == sorted(trained):
        found, expected = ", ".join(names), ", ".join(trained)
        raise UserError(f"the columns are {found}, but those of fit were {expected}")


def to_dense(labels: Any) -> Any:
    """Converts a sparse matrix of SciPy to an array; returns other labels unchanged."""
    return labels.toarray() if hasattr(labels, "toarray") else labels


def to_array(values: list[Any]) -> np.ndarray:
    """Converts values to an array of their type; of objects if they are lists or differ in type."""
    if len({*map(type, values)}) > 1:
        values = [x.item() if isinstance(x, np.generic) else x for x in values]
    array = np.empty(len(values), object)
    array[:] = values
    is_uniform = len({*map(type, values)}) == 1 and not isinstance(values[0], list)
    return np.array(values) if is_uniform else array
