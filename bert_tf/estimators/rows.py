"""Texts and labels of a Python program as a file of JSON lines, which the scripts read."""

import contextlib
import itertools
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.tables.columns import to_text
from bert_tf.text_inputs import items_of

LIST_TYPES = (list, tuple, set, frozenset, np.ndarray, Mapping)
_MISSING_TYPES = ("NAType", "NaTType")  # of pandas
_ABSENT = object()


class Rows:
    """A file for `fit`, and what its rows have in common.

    Args:
        path: path of the file.
        to_row: (text, label, these rows) -> row.
        unit: what a row is called in messages.

    Attributes:
        place: the current row in messages, such as "text 3"; rows are counted from 0.
        names: name of each label, as in `labels.txt` -> the label.
        first: what the first row is.
    """

    def __init__(
        self, path: str, to_row: Callable[[Any, Any, "Rows"], Any], unit: str = "text"
    ) -> None:
        self.path, self._to_row, self._unit = path, to_row, unit
        self.place, self.first = "", ""
        self.names: dict[str, Any] = {}

    def write(self, texts: Any, labels: Any) -> None:
        """Writes a line of JSON for each text and its label; reads one at a time.

        Raises a UserError if there is no text, or if the numbers of texts and labels differ.
        """
        items = items_of(texts, "texts"), label_items(labels)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("\n")  # because advice about line 1 is about headers
            for index, pair in enumerate(itertools.zip_longest(*items, fillvalue=_ABSENT)):
                self.place = f"{self._unit} {index}"
                if any(item is _ABSENT for item in pair):
                    raise UserError(f"Texts and labels differ in number: one has only {index}")
                file.write(json.dumps(self._to_row(*pair, self)) + "\n")
        if not self.place:
            raise UserError(f"There are no {self._unit}s")

    def require_same(self, what: str) -> None:
        """Raises a UserError if the row is something else than the first one."""
        self.first = self.first or what
        if self.first != what:
            raise UserError(f"{self.place} is {what}, but the first one is {self.first}")

    @contextlib.contextmanager
    def named_in_messages(self) -> Iterator[None]:
        """In log and errors, replaces the file and its lines by the texts: "text 3" for line 5."""
        line = re.compile(re.escape(self.path) + r"(:(\d+))?")

        def rename(message: str) -> str:
            names = lambda x: f"{self._unit} {int(x[2]) - 2}" if x[1] else f"{self._unit}s"  # noqa: E731
            return line.sub(names, message)

        def rename_record(record: logging.LogRecord) -> bool:
            record.msg, record.args = rename(record.getMessage()), ()
            return True

        log.addFilter(rename_record)
        try:
            yield
        except UserError as error:
            raise type(error)(rename(str(error))) from error
        finally:
            log.removeFilter(rename_record)


def label_items(labels: Any) -> Iterator[Any]:
    """Yields labels; the rows of a table as dicts, by the names or numbers of its columns."""
    shape = getattr(labels, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        yield from items_of(labels, "labels")
        return
    names = [str(name) for name in getattr(labels, "columns", range(shape[1]))]
    yield from (dict(zip(names, row, strict=True)) for row in items_of(labels))


def require_text(text: Any, place: str) -> list[str]:
    """Returns a text, or the two texts of a pair; raises a UserError for anything else."""
    parts = [*text] if isinstance(text, list | tuple) else [text]
    for part in filter(_is_missing, parts):
        raise UserError(f"{place} is missing ({part}). Remove it, or replace it by ''")
    if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
        expected = "must be a string, or a tuple of two strings"
        raise UserError(f"{place} {expected}. Received: {text!r:.60}")
    return parts


def plain(label: Any, place: str) -> Any:
    """Converts a label to a value that JSON has; raises a UserError if it is missing or unknown."""
    if _is_missing(label):
        raise UserError(f"The label of {place} is missing ({label}). Remove the text")
    if isinstance(label, Mapping):
        return {str(name): plain(value, place) for name, value in label.items()}
    if isinstance(label, LIST_TYPES):
        return [plain(value, place) for value in label]
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float):
        expected = "must be a string, a number, a boolean or a list of these"
        raise UserError(f"The label of {place} {expected}. Received: {label!r:.60}")
    return value


def class_names(label: Any, rows: Rows) -> Any:
    """Converts a label or a list of labels to names, as in `labels.txt`, and notes the labels."""
    if isinstance(label, LIST_TYPES):
        return [class_names(item, rows) for item in label]
    value = plain(label, rows.place)
    if isinstance(value, float) and not value.is_integer():
        advice = "For numbers, use TextRegressor; write names of classes as strings"
        raise UserError(f"The label of {rows.place} is {label}. {advice}")
    name = to_text(value, "label", rows.place).strip()
    if not name:
        raise UserError(f"The label of {rows.place} is empty")
    if (other := rows.names.setdefault(name, label)) != label:
        raise UserError(f"The labels {other!r} and {label!r} have the same name. Use only one")
    return name


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in _MISSING_TYPES


def to_array(values: list[Any]) -> np.ndarray:
    """Returns values of one type, but not lists, as an array of that type; others as objects."""
    array = np.empty(len(values), object)
    array[:] = values
    is_uniform = len({*map(type, values)}) == 1 and not isinstance(values[0], list)
    return np.array(values) if is_uniform else array
