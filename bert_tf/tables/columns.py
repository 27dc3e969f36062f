"""Finds the columns of a user's table by name or number, and converts the values of cells."""

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base.errors import UserError, Where, brief, counted, excerpt, shortened, warn
from bert_tf.tables.read import BAR_HINT, Row

_SHOWN_NAMES = 20  # in a message
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
    """Yields the place of each row, and purpose -> `cell`; see `find_positions`.

    With `has_header="auto"`, the first row has the names of columns if any is given by name.
    """
    positions: dict[str, Any] = {}
    named = [f"{_flag(x)}={column}" for x, column in columns.items() if is_name(column)]
    if named and has_header == "no":
        raise UserError(f"{named[0]} is a name, but --has_header=no: pass a 1-based number")
    for row in rows:
        is_first = not (positions or isinstance(row.cells, dict))
        is_header = is_first and (has_header == "yes" or bool(named))
        if is_first and not is_header and any(map(COLUMN_NAME.fullmatch, row.cells)):
            names = shortened(brief(row.cells), _SHOWN_NAMES)
            problem = f"looks like a header, but is read as data: {names}"
            warn(problem, at=row.place, fix="Pass columns by name, or --has_header=yes")
        if not positions:
            header = [name.strip() for name in row.cells] if is_header else []
            positions = find_positions(path, row, columns, header, split)
        if not is_header:
            yield row.place, {purpose: cell(row, purpose, at) for purpose, at in positions.items()}


def find_positions(
    path: str, first_row: Row, columns: Mapping[str, str], header: Sequence[str], split: str = ""
) -> dict[str, Any]:
    """Maps each purpose to a column index, or to a JSON path if `first_row` is a JSON object.

    A purpose such as "text" stands for the flag --text_column. The label, and purposes such as
    "ending_columns", may be several columns, such as `toxic,insult`: then name -> position. The
    message for a missing column says how to pass another one for `split`.
    """
    positions: dict[str, Any] = {}
    purpose_at: dict[Any, str] = {}
    numbers = [x.strip() for c in columns.values() for x in c.split(",") if not is_name(x.strip())]
    if others := {*numbers}.difference(header) if {*numbers}.intersection(header) else ():
        advice = f"Pass names: {shortened(list(map(excerpt, header)), _SHOWN_NAMES)}"
        problem = f"some columns have numbers as names, but none is named {min(others)}"
        raise UserError(problem, at=first_row.place, fix=advice)
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
    """Returns the positions of several columns, or a list with that of a single one."""
    return [*position.values()] if isinstance(position, dict) else [position]


def cell(row: Row, purpose: str, position: Any, split: str = "") -> Any:
    """Returns the value of a cell, or name -> value for several; position may be a JSON path.

    Raises a UserError if a JSON object lacks the key.
    """
    if isinstance(position, dict):
        return {name: cell(row, purpose, column) for name, column in position.items()}
    if not isinstance(row.cells, dict):
        return row.cells[position]
    try:
        return value_at(row.cells, position)
    except KeyError:
        names = paths_in(row.cells)
        raise _no_such_column(row.place, purpose, position, names, "key", split) from None


def value_at(value: Any, path: str) -> Any:
    """Returns a value in nested JSON by its path, such as `question.stem` or `answers.0`.

    In a list, a key stands for the values of all elements. Raises a KeyError if there is no such
    value. A key may contain points.
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
    """Returns the columns of a row, or the paths of all values in nested JSON objects."""
    return [
        f"{key}.{rest}" if rest else key
        for key, value in cells.items()
        for rest in (isinstance(value, dict) and paths_in(value)) or [""]
    ]


def num_numbers(columns: Iterable[str]) -> int:
    """Returns how many columns are given by number; 0 if one is given by name."""
    columns = list(columns)
    return 0 if any(map(is_name, columns)) else len(",".join(columns).split(","))


def is_name(column: str) -> bool:
    """Returns whether a column is given by name, not by number; or any of several columns."""
    return not re.fullmatch("[0-9]{1,9}(, *[0-9]{1,9})*", column)


def _find_position(
    first_row: Row, purpose: str, column: str, header: Sequence[str], split: str
) -> Any:
    cells = first_row.cells
    names = paths_in(cells) if isinstance(cells, dict) else header
    is_list = purpose == "label" or purpose.endswith("_columns")
    if is_list and "," in column and column.strip() not in names:
        parts = [part.strip() for part in column.split(",") if part.strip()]
        if len(parts) < 2:
            problem = f"{_flag(purpose)}={column} has a comma, but only one column"
            raise UserError(problem, at=first_row.place, fix="Remove the comma")
        positions = [_find_position(first_row, purpose, part, header, split) for part in parts]
        if len({*positions}) < len(parts):
            raise UserError(f"{_flag(purpose)}={column} repeats a column", at=first_row.place)
        if header:
            parts = [header[int(position)] for position in positions]
        return dict(zip(parts, positions, strict=True))
    if isinstance(cells, dict):
        cell(first_row, purpose, column, split)  # raises an error if there is none
        return column
    matches = [position for position, name in enumerate(header) if name == column.strip()]
    if len(matches) > 1:
        columns = f"{first_row.place}: columns {matches[0] + 1} and {matches[1] + 1}"
        raise UserError(f"{columns} are both called {excerpt(column)}", fix="Rename one of them")
    if matches:
        return matches[0]
    if is_name(column) or "," in column:
        raise _no_such_column(first_row.place, purpose, column, header, "column", split)
    if not 1 <= int(column) <= len(first_row.cells):
        place, cells = first_row.place, first_row.cells
        problem = f"but the row has {counted(len(cells), 'column')}: {excerpt(', '.join(cells))}"
        separate = " Separate columns with tabs or, in a .csv file, commas (to join files: paste)"
        advice = _csv_hint(place, cells) or separate * (len(cells) == 1)
        if column in cells:
            advice = f" Numbers count from 1; if {column} is a name, pass --has_header=yes"
        elif int(column) == 0:
            advice += " Numbers count from 1"
        raise UserError(f"{_flag(purpose)}={column}, {problem}.{advice}", at=place)
    return int(column) - 1


def _no_such_column(
    place: Where, purpose: str, column: str, names: Sequence[str], kind: str, split: str = ""
) -> UserError:
    available = shortened(list(map(excerpt, names)), _SHOWN_NAMES)
    by_folded_name = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(column.casefold(), by_folded_name, n=1)
    parts = [part.strip() for part in column.split(",")]
    if kind == "column" and any(re.fullmatch('".+"', name) for name in names):
        advice = " The column names are in quotes: pass --quoted=yes (run_classifier.py)"
    elif hint := _csv_hint(place, names):
        advice = hint
    elif {*parts} <= {*names}:
        advice = f" {_flag(purpose)} takes one column, such as {parts[0]}"
        scripts = "run_classifier.py and extract_features.py"
        pair = f"; for pairs, {scripts} also take --text_pair_column={parts[1]}"
        advice += pair * (purpose == "text")
    elif purpose == "ending_columns" and len(endings := _numbered(column, names)) > 1:
        advice = f" Did you mean {_flag(purpose)}={','.join(endings)}?"
    elif close:
        advice = f" Did you mean {_flag(purpose)}={by_folded_name[close[0]]}?"
    elif purpose == "question":
        advice = " If the endings have no common beginning, pass --question_column="
    elif kind == "key":
        labels = "; if labels are in another file, add them" * (purpose == "label")
        advice = f" Pass one of these, or correct the line{labels}"
    else:
        advice = " If this row is data, pass 1-based column numbers"
    if split in ("eval", "predict"):
        end = "" if advice.endswith("?") else "."
        advice += f"{end} If only this file differs, add ,{split}:NAME to {_flag(purpose)}"
    rest = f", only {available}" if names else ": the object is empty"
    return UserError(f"there is no {kind} {column!r} ({_flag(purpose)}){rest}.{advice}", at=place)


def _numbered(column: str, names: Sequence[str]) -> list[str]:
    """Returns the names that differ from a column only in the number at the end."""
    stem = re.escape(column.rstrip("0123456789"))
    return [name for name in names if re.fullmatch(rf"{stem}\d+", name)]


def _csv_hint(place: Where, cells: Sequence[str]) -> str:
    if len(cells) != 1:
        return ""
    if ".csv" not in str(place) and ("," in cells[0] or ";" in cells[0]):
        return " Is this a CSV file? Then rename it to .csv"
    return f" {BAR_HINT}" * ("|" in cells[0])


def to_text(value: Any, name: str, place: Where) -> str:
    """Converts a cell, which in JSON may be a number or boolean, to text; 1.0 becomes "1".

    Error messages contain `name` (what the cell holds, such as "text") and `place` (file, line).
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            problem = "contains half a character (a lone surrogate)"
            raise UserError(
                f"the {name} {problem}", at=place, fix="Correct or remove the line"
            ) from None
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    advice = {
        dict: "Pass the path of one of its fields, such as question.stem",
        list: f"Write one line for each {name}, or join the parts to one text",
    }.get(type(value), "Correct or remove it")
    received = f"Received: {excerpt(json.dumps(value))}. {advice}"
    raise UserError(f"the {name} must be a string or a finite number. {received}", at=place)


def parse_number(text: str) -> float | None:
    """Parses a decimal number of at most 1e38, as models compute in float32; otherwise, None."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) <= 1e38 else None
