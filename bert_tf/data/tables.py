"""Reads users' tables (TSV, CSV, JSON lines), keeping file and line for error messages.

For GLUE's files see `tsv`, which is as lenient as the original.
"""

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf import files, text_lines
from bert_tf.data.cell_values import counted, excerpt
from bert_tf.data.tsv import TsvRow, read_rows
from bert_tf.errors import UserError

_JSON_EXTENSIONS = (".json", ".jsonl", ".ndjson")
_OBJECT_ADVICE = (
    'Each line must be an object, such as {"text": "...", "label": "..."}; a .json file may also '
    "be a list of objects"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row: `place` is the file and line of its start, `cells` a list, or a dict for JSON."""

    place: str
    cells: Any


def read_table(path: str, quoted: str = "auto") -> list[Row]:
    """Reads all rows of a UTF-8 table, including any header; the extension determines the format.

    `.csv`: columns separated by the most frequent of `,`, `;` and tab in the first line; `.jsonl`,
    `.ndjson` and `.json`: an object per line or, in `.json`, one list; others: tab-separated
    columns. All may be gzipped (`.gz`). Lines end with LF or CRLF. A byte order mark and blank
    lines at the end are ignored. Other blank lines are ignored in JSON, empty texts in one-column
    tables, and errors elsewhere.

    Args:
        path: the file.
        quoted: whether cells may be enclosed in quotes (`"`) and then contain delimiters, line
            breaks and doubled quotes: "yes", "no", or "auto", which means "yes" for CSV.

    Raises:
        UserError: the file cannot be read, or a row is invalid; the message names the line.
    """
    extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    with files.open_decompressed(path) as file:
        lines = _decode(path, text_lines.split(path, file))
        if extension in _JSON_EXTENSIONS:
            return list(_read_json(path, lines, may_be_list=extension == ".json"))
        is_csv = extension == ".csv"
        is_quoted = is_csv if quoted == "auto" else quoted == "yes"
        first = next(lines, "")
        if is_csv and re.fullmatch('"?sep=.?"?', first.rstrip("\r\n"), re.IGNORECASE):
            line = excerpt(first.rstrip("\r\n"))
            raise UserError(f"{path}:1: {line} is Excel's delimiter declaration. Remove the line")
        delimiter = _guess_delimiter(first, is_quoted) if is_csv else "\t"
        rows = list(read_rows(path, itertools.chain([first], lines), delimiter, is_quoted))
        return list(_check_rows(path, rows, delimiter))


def _decode(path: str, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(text_lines.decode(path, lines), start=1):
        if "\0" in line:
            problem = f"NUL byte at position {line.index(chr(0)) + 1}"
            command = f"iconv -f utf-16le -t utf-8 {os.path.basename(path)}"
            raise UserError(
                f"{path}:{number}: {problem}. Is it a text file? Convert UTF-16 with: {command}"
            )
        yield line.removeprefix("\ufeff") if number == 1 else line


def _guess_delimiter(line: str, quoted: bool) -> str:
    """Returns the most frequent of comma, semicolon and tab in a line, ignoring quoted text."""
    unquoted = re.sub(r'"[^"]*("|$)', "", line) if quoted else line
    return max(",;\t", key=unquoted.count)


def _check_rows(path: str, rows: Sequence[TsvRow], delimiter: str) -> Iterator[Row]:
    """Yields rows that have as many columns as the first; a blank line in one column is a text."""
    width = next((len(row.cells) for row in rows if row.cells), 1)
    for row in rows:
        place, cells = f"{path}:{row.line}", row.cells or [""]
        if not row.cells and width > 1:
            raise UserError(f"{place}: the line is empty. Remove it")
        if len(cells) != width:
            raise _width_error(place, cells, width, delimiter)
        yield Row(place, cells)


def _width_error(place: str, cells: list[str], width: int, delimiter: str) -> UserError:
    columns, row = counted(len(cells), "column"), excerpt(delimiter.join(cells))
    return UserError(
        f"{place}: {columns}, but {width} in the first row: {row}. Columns are separated by "
        f"{delimiter!r}: remove it from the text, or enclose the text in quotes "
        "(for a .tsv file, also pass --quoted=yes). If commas separate columns, name the file .csv"
    )


def _read_json(path: str, lines: Iterable[str], may_be_list: bool) -> Iterator[Row]:
    if may_be_list:
        lines = list(lines)
        text = "".join(lines)
        if text.lstrip().startswith("["):
            for number, value in enumerate(_parse_json(text, path, 1), start=1):
                yield _json_row(value, f"{path}: element {number}")
            return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _json_row(_parse_json(line.rstrip(), path, number), f"{path}:{number}")


def _parse_json(text: str, path: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line, reason = first_line + error.lineno - 1, f"{error.msg} at position {error.colno}"
    except RecursionError:
        line, reason = first_line, "nested too deeply"
    except ValueError:
        line, reason = first_line, "number with too many digits"
    raise UserError(f"{path}:{line}: not JSON ({reason}). {_OBJECT_ADVICE}")


def _json_row(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise UserError(f"{place}: {excerpt(json.dumps(value))} is not an object. {_OBJECT_ADVICE}")
    return Row(place, value)
