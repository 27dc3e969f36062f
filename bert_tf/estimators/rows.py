"""Texts and labels of a Python program as files of JSON lines, which the scripts read."""

import contextlib
import dataclasses
import itertools
import json
import logging
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.tables.columns import to_text
from bert_tf.text_inputs import items_of

LIST_TYPES = (list, tuple, set, frozenset, Mapping, np.ndarray)
_MISSING_TYPES = ("NAType", "NaTType")  # of pandas
_ABSENT = object()


@dataclasses.dataclass
class Data:
    """A file for `fit`, and what its rows have in common.

    Attributes:
        path: path of the file.
        unit: what a row is called in messages.
        place: the current row in messages, such as "text 3"; rows are counted from 0.
        names: name of each label -> the label; the names are those in `labels.txt`.
        kind: number of texts in a row; 0 if unknown.
        is_multilabel: whether a text has a list of labels; None if unknown.
        as_columns: whether labels are a table.
    """

    path: str
    unit: str = "text"
    place: str = ""
    names: dict[str, Any] = dataclasses.field(default_factory=dict)
    kind: int = 0
    is_multilabel: bool | None = None
    as_columns: bool = False

    def require_same(self, kind: int, *names: str) -> None:
        """Raises a UserError if the row has another number of texts than the first one."""
        self.kind = self.kind or kind
        if kind != self.kind:
            raise UserError(
                f"{self.place} is {names[kind - 1]}, but text 0 is {names[self.kind - 1]}"
            )

    @contextlib.contextmanager
    def named_in_messages(self) -> Iterator[None]:
        """In log and errors, replaces the file and its lines by the texts: "text 3" for line 4."""

        def rename(message: str) -> str:
            line = re.compile(re.escape(self.path) + r":(\d+)")
            message = line.sub(lambda match: f"{self.unit} {int(match[1]) - 1}", message)
            return message.replace(self.path, f"{self.unit}s")

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


def write_rows(
    data: Data, texts: Any, labels: Any, to_row: Callable[[Any, Any, Data], Mapping[str, Any]]
) -> None:
    """Writes a line of JSON for each text and its label; reads one at a time.

    Raises a UserError if there is no text, or if the numbers of texts and labels differ.
    """
    data.as_columns = data.as_columns or _is_table(labels)
    pairs = itertools.zip_longest(items_of(texts, "texts"), _label_items(labels), fillvalue=_ABSENT)
    index = -1
    with open(data.path, "w", encoding="utf-8") as file:
        for index, (text, label) in enumerate(pairs):
            data.place = f"{data.unit} {index}"
            for item, name, other in ((text, "texts", "labels"), (label, "labels", "texts")):
                if item is _ABSENT:
                    raise UserError(f"There are only {index} {name}, but more {other}")
            file.write(json.dumps(to_row(text, label, data)) + "\n")
    if index < 0:
        raise UserError(f"There are no {data.unit}s")


def _is_table(labels: Any) -> bool:
    shape = getattr(labels, "shape", ())
    return len(shape) == 2 and shape[1] > 1


def _label_items(labels: Any) -> Iterator[Any]:
    """Yields labels; the rows of a table as dicts, by the names or numbers of its columns."""
    if not _is_table(labels):
        yield from items_of(labels, "labels")
        return
    names = [str(name) for name in getattr(labels, "columns", range(labels.shape[1]))]
    yield from (dict(zip(names, row, strict=True)) for row in items_of(labels, "labels"))


def require_text(text: Any, place: str) -> list[str]:
    """Returns a text, or the two texts of a pair; raises a UserError for anything else."""
    parts = [*text] if isinstance(text, list | tuple) else [text]
    for part in parts:
        if _is_missing(part):
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


def class_name(label: Any, data: Data) -> str:
    """Returns the name of a label, as in `labels.txt`, and notes the label."""
    value = plain(label, data.place)
    if isinstance(value, float) and not value.is_integer():
        advice = "For numbers, use TextRegressor; write names of classes as strings"
        raise UserError(f"The label of {data.place} is {label}. {advice}")
    name = to_text(value, "label", data.place).strip()
    if not name:
        raise UserError(f"The label of {data.place} is empty")
    if (other := data.names.setdefault(name, label)) != label:
        raise UserError(f"The labels {other!r} and {label!r} have the same name. Use only one")
    return name


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in _MISSING_TYPES


def to_array(values: list[Any], dtype: Any = None) -> np.ndarray:
    """Returns values of one type as an array of that type, and others as objects."""
    if dtype is None and len({*map(type, values)}) == 1:
        return np.array(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Restores the random generators of Python and NumPy, which training seeds."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
