"""Finds the columns of a user's table by name or number, and converts the values of cells."""

import difflib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base.errors import Place, UserError, Where, brief, counted, excerpt, shortened, warn
from bert_tf.tables.read import Row

_SHOWN_NAMES, _SHOWN_CELLS = 20, 5  # in a message
_ROWS_AHEAD = 1000  # number of rows that are read to find out whether the first is a header
_COMMON_WORD = (
    "(text|sentence|question)(_?[12ab])?|anchor|answer|body|category|class|comment|content|"
    "description|document|hypothesis|id|index|labels?|message|passage|positive|premise|query|"
    "review|score|sentiment|sms|target|title|tweet"
)
# Common column names: one or two of these words, such as "text_a" or "Review Title".
COLUMN_NAME = re.compile(rf"\s*({_COMMON_WORD})([ _]({_COMMON_WORD}))?\s*", re.IGNORECASE)
# Stricter than float(), which also accepts "1_0" and non-ASCII digits.
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def read_cells(
    path: str,
    rows: Iterable[Row],
    columns: Mapping[str, str],
    has_header: str = "auto",
    split: str = "",
) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yields the place of each row, and its cells as purpose -> value; see `find_positions`.

    The first row is a header if any column is given by name, or if `has_header` is "yes". If it is
    "no", the first row is data. "auto" warns if the first row is read as data, but looks like a
    header. Raises a UserError for a row with fewer cells than the first row, or more. But if more
    than half of the columns are not read, extra cells, as in the STS benchmark, are not part of a
    text: they are left out with a warning.
    """
    by_name = [f"{_flag(x)}={column}" for x, column in columns.items() if is_name(column)]
    rows, ahead = itertools.tee(rows)
    rows_ahead = list(itertools.islice(ahead, _ROWS_AHEAD))
    del ahead  # otherwise, `tee` would keep all rows in memory
    if not rows_ahead:
        return
    first = rows_ahead[0]
    is_table = not isinstance(first.cells, dict)
    if is_table and by_name and has_header == "no":
        raise UserError(f"{by_name[0]} is a name, but --has_header=no")
    is_header = is_table and (has_header == "yes" or bool(by_name))
    header = [str(name).strip() for name in first.cells] if is_header else []
    positions = find_positions(path, first, columns, header, split)
    if is_table and not is_header and has_header == "auto":
        _warn_of_names([row for row in rows_ahead if len(row.cells) == len(first.cells)], positions)
    num_used = sum(len(positions_in(position)) for position in positions.values())
    repeated: Where | None = None
    rows = _require_layout(rows, first, num_used)
    for row in itertools.islice(rows, int(is_header), None):  # without the header
        if is_header and row.cells == first.cells:
            repeated = repeated or row.place
        yield row.place, {purpose: cell(row, purpose, at) for purpose, at in positions.items()}
    if repeated:
        warn("the row repeats the header", at=repeated)


def _require_layout(rows: Iterable[Row], first: Row, num_used: int) -> Iterator[Row]:
    """Yields rows, cut to the length of the first row; raises errors as in `read_cells`."""
    width, kind = len(first.cells), type(first.cells)
    longer: list[Where] = []
    for row in rows:
        count = len(row.cells)
        if not isinstance(row.cells, kind):
            received = excerpt(json.dumps(row.cells))
            raise UserError(f"unlike the first row: {received}", at=row.place)
        if kind is list and (count < width or count > width <= 2 * num_used):
            received = shortened([excerpt(str(x)) for x in row.cells], _SHOWN_CELLS)
            problem = f"{counted(count, 'column')}, but {width} in the first row: {received}"
            advice = "Enclose a text with separators or line breaks in quotes"
            raise UserError(problem, at=row.place, fix=advice)
        is_longer = kind is list and count > width
        longer += [row.place] * is_longer
        yield Row(row.place, row.cells[:width]) if is_longer else row
    if longer:
        more = f"more cells than the first ({width}), which are left out"
        warn(f"{counted(len(longer), 'row')} with {more}", at=longer[0])


def _warn_of_names(rows: Sequence[Row], positions: Mapping[str, Any]) -> None:
    """Warns if the first row is read as data, but looks like a header."""
    first, *others = (list(map(str, row.cells)) for row in rows)
    is_labeled = not {"label", "score"}.isdisjoint(positions)
    for purpose, position in positions.items():
        for index in positions_in(position):
            cells = [row[index].strip() for row in others]
            has_classes = purpose in ("label", "score")
            if _is_name_of(first[index].strip(), cells, has_classes, not is_labeled):
                names = shortened(brief(first), _SHOWN_NAMES)
                problem = f"looks like a header, but is read as data: {names}"
                warn(problem, at=rows[0].place, fix="If it is one, pass --has_header=yes")
                return


def _is_name_of(first: str, others: Sequence[str], has_classes: bool, has_texts: bool) -> bool:
    """Guesses whether the cell `first` is the name of a column with the cells `others`."""
    if first in others or parse_number(first) is not None:
        return False
    if COLUMN_NAME.fullmatch(first):
        return True
    if has_classes and others:  # classes repeat; scores are numbers
        are_classes = len(others) > 3 and 2 * len({*others}) <= len(others)
        return bool(first) and (are_classes or all(parse_number(x) is not None for x in others))
    num_texts = sum(len(x.split()) > 1 for x in others)
    return has_texts and len(first.split()) == 1 and 2 * num_texts > len(others)


def find_positions(
    path: str, first_row: Row, columns: Mapping[str, str], header: Sequence[str], split: str = ""
) -> dict[str, Any]:
    """Maps each purpose to a column index, or to a JSON path if `first_row` is a JSON object.

    The purpose "text" stands for the flag --text_column. The label, and purposes such as
    "ending_columns", may be several columns, such as `toxic,insult`, whose position is a dict,
    name -> position. `split` is only for messages: those about a missing column say how to pass a
    different one for this split.
    """
    positions: dict[str, Any] = {}
    purpose_at: dict[Any, str] = {}
    numbers = [x.strip() for c in columns.values() for x in c.split(",") if not is_name(x.strip())]
    if others := {*numbers}.difference(header) if {*numbers}.intersection(header) else ():
        problem = f"some columns have numbers as names, but none is named {min(others)}"
        raise UserError(problem, at=first_row.place)
    for purpose, column in columns.items():
        positions[purpose] = _find_position(first_row, purpose, column, header, split)
        for position in positions_in(positions[purpose]):
            other = purpose_at.setdefault(position, purpose)
            if other != purpose:
                same = f"{_flag(other)} and {_flag(purpose)}={column}"
                raise UserError(f"{same} are the same column", at=path)
    return positions


def _flag(purpose: str) -> str:
    return f"--{purpose}" if purpose.endswith("_columns") else f"--{purpose}_column"


def positions_in(position: Any) -> list[Any]:
    """Returns the positions of all columns of a purpose as a list."""
    return [*position.values()] if isinstance(position, dict) else [position]


def cell(row: Row, purpose: str, position: Any, split: str = "") -> Any:
    """Returns the value at a position, or name -> value for a dict of positions.

    Raises a UserError if a JSON object has no value at the path `position`.
    """
    if isinstance(position, dict):
        return {name: cell(row, purpose, column) for name, column in position.items()}
    if not isinstance(row.cells, dict):
        return row.cells[position]
    try:
        return value_at(row.cells, position)
    except KeyError:
        names = paths_in(row.cells)
        raise _no_such_column(row.place, purpose, position, names, split) from None


def value_at(value: Any, path: str) -> Any:
    """Returns a value in nested JSON by its path, such as `question.stem` or `answers.0`.

    A key that is applied to a list returns the values of all elements. Keys may contain periods.
    Raises a KeyError if there is no such value.
    """
    if isinstance(value, list):
        if not path.partition(".")[0].isdecimal():
            return [value_at(element, path) for element in value]
        value = {str(index): element for index, element in enumerate(value)}
    if isinstance(value, dict):
        if path in value:
            return value[path]
        for point in re.finditer(r"\.", path):
            if path[: point.start()] in value:
                return value_at(value[path[: point.start()]], path[point.end() :])
    raise KeyError(path)


def paths_in(cells: Mapping[str, Any]) -> list[str]:
    """Returns the keys of a JSON object, with paths such as `question.stem` for nested objects."""
    return [
        f"{key}.{rest}" if rest else key
        for key, value in cells.items()
        for rest in (isinstance(value, dict) and paths_in(value)) or [""]
    ]


def is_name(column: str) -> bool:
    """Returns whether a column, or any of several, is given by name rather than by number."""
    return not re.fullmatch("[0-9]{1,9}(, *[0-9]{1,9})*", column)


def _find_position(
    first_row: Row, purpose: str, column: str, header: Sequence[str], split: str
) -> Any:
    cells, place = first_row.cells, first_row.place
    names = paths_in(cells) if isinstance(cells, dict) else header
    is_list = purpose == "label" or purpose.endswith("_columns")
    parts = [part.strip() for part in column.split(",") if part.strip()]
    if is_list and len(parts) > 1 and column.strip() not in names:
        positions = [_find_position(first_row, purpose, part, header, split) for part in parts]
        if header:
            parts = [header[int(position)] for position in positions]
        return dict(zip(parts, positions, strict=True))
    column = parts[0] if is_list and len(parts) == 1 else column
    if isinstance(cells, dict):
        cell(first_row, purpose, column, split)  # raises an error if there is none
        return column
    matches = [position for position, name in enumerate(header) if name == column.strip()]
    if len(matches) > 1:
        numbers = f"columns {matches[0] + 1} and {matches[1] + 1}"
        raise UserError(f"{numbers} are both called {excerpt(column)}", at=place)
    if matches:
        return matches[0]
    if is_name(column) or "," in column:
        raise _no_such_column(place, purpose, column, header, split)
    if not 1 <= int(column) <= len(cells):
        received = f"{counted(len(cells), 'column')}: {excerpt(', '.join(map(str, cells)))}"
        problem = f"{_flag(purpose)}={column}, counting from 1, but the row has {received}"
        raise UserError(problem, at=place, fix=_csv_hint(place, cells))
    return int(column) - 1


def _no_such_column(
    place: Where, purpose: str, column: str, names: Sequence[str], split: str
) -> UserError:
    available = shortened(list(map(excerpt, names)), _SHOWN_NAMES) or "an empty row"
    by_folded_name = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(column.casefold(), by_folded_name, n=1)
    close = [] if purpose.endswith("_columns") else close
    fix = _csv_hint(place, names)
    if close and not fix:
        fix = f"Did you mean {_flag(purpose)}={by_folded_name[close[0]]}?"
    if split in ("eval", "predict") and not fix:
        fix = f"If only this file differs, add ,{split}:NAME to the flag"
    problem = f"there is no column {column!r} ({_flag(purpose)}), only {available}"
    return UserError(problem, at=place, fix=fix)


def _csv_hint(place: Where, cells: Sequence[Any]) -> str | None:
    file = place.file if isinstance(place, Place) else str(place)
    is_csv = ".csv" not in file and len(cells) == 1 and re.search("[,;]", str(cells[0]))
    return "Is this a CSV file? Then rename it to .csv" if is_csv else None


def to_text(value: Any, name: str, place: Where) -> str:
    """Converts a cell, which in JSON may be a number or boolean, to text; 1.0 becomes "1".

    Raises a UserError for other types, for infinity and NaN, and for lone surrogates. The message
    contains `name`, such as "text", and `place`.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if not isinstance(value, str) or (not value.isascii() and re.search("[\ud800-\udfff]", value)):
        received = excerpt(value if isinstance(value, str) else json.dumps(value))
        problem = f"the {name} must be a string or a finite number. Received: {received}"
        raise UserError(problem, at=place)
    return value


def parse_number(text: str) -> float | None:
    """Parses a decimal number; None if it is none, or beyond 1e38, as models compute in float32."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) <= 1e38 else None
