"""Rows of JSON files: a value per line, or one value with all rows, in the layouts people have."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import Place, UserError, excerpt, shortened

# Split -> its names in files, the most common first.
SPLIT_NAMES = {
    "train": ("train",),
    "eval": ("dev", "val", "valid", "validation", "eval", "devel", "testa"),
    "predict": ("test", "testb"),
}
# Keys of a table as pandas writes it with orient="split" and "table".
_SPLIT, _TABLE = {"columns", "index", "data"}, {"schema", "data"}


def read_values(path: str, lines: Iterable[str], split: str) -> Iterator[tuple[Place, Any]]:
    """Yields the place and the cells of each row, see `read.read_table`.

    If several lines are not empty and the first is JSON, each is a row. Otherwise, the file is one
    value: a list of rows, a table as pandas writes it with any `orient`, an object in which a list
    has the name of the split, or a single row.
    """
    lines, ahead, filled = iter(lines), list[str](), list[str]()
    while len(filled) < 2 and (line := next(lines, "")):
        ahead.append(line)
        filled += [line] * bool(line.strip())
    lines = itertools.chain(ahead, lines)
    if len(filled) == 2 and _parse(filled[0]) is not None:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = Place(path, number)
                yield place, _cells(files.parse_json(line.rstrip(), path, number), place)
    elif filled:
        value = files.parse_json("".join(lines), path)
        if (rows := _rows(value, split)) is None:
            place = Place(path, ahead.index(filled[0]) + 1)
            if len(filled) > 1:
                problem = f"one object, with the keys {shortened(list(map(excerpt, value)))}"
                raise UserError(problem, at=place, fix="Write a list of objects, or one per line")
            yield place, _cells(value, place)
        for number, row in enumerate(rows or (), start=1):
            place = Place(path, number, is_element=True)
            yield place, _cells(row, place)


def is_object(line: str) -> bool:
    """Returns whether a line is a whole JSON object."""
    return line.lstrip().startswith("{") and isinstance(_parse(line), dict)


def _parse(text: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _rows(value: Any, split: str) -> Any:
    """Returns the rows in a value; None if it is a row, or no table."""
    if not isinstance(value, dict) or not value:
        return value if isinstance(value, list) else None
    data = value.get("data")
    if value.keys() == _TABLE and isinstance(data, list):
        return data
    if value.keys() == _SPLIT and isinstance(data, list):
        return [dict(zip(map(str, value["columns"]), row, strict=False)) for row in data]
    if all(isinstance(x, dict) and x for x in value.values()):
        if all(map(str.isdecimal, value)):  # orient="index"
            return [*value.values()]
        first, *others = value.values()
        if all(map(str.isdecimal, first)) and all(x.keys() == first.keys() for x in others):
            return [{name: cells[row] for name, cells in value.items()} for row in first]
    for name, rows in value.items():
        has_rows = isinstance(rows, list) and rows and isinstance(rows[0], dict | list)
        if has_rows and name.lower() in SPLIT_NAMES.get(split, ()):
            return rows
    return None


def _cells(value: Any, place: Place) -> dict[str, Any] | list[Any]:
    # Training data of spaCy: a text, and an object with its labels.
    if isinstance(value, list) and [*map(type, value)] == [str, dict]:
        return {"text": value[0], **value[1]}
    if not isinstance(value, dict | list):
        received = excerpt(json.dumps(value))
        raise UserError(f"expected an object or a list. Received: {received}", at=place)
    return value
