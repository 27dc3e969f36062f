"""Tables of a user's own: TSV, CSV or JSON lines, as rows that know where they stand.

The sets that everybody has are read by `tsv`, as the original does it. Here nothing is passed over
in silence: a row that is not like the others is mostly a text that was cut at the wrong place.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf import files
from bert_tf.data.cell_values import excerpt
from bert_tf.data.csv_reader import Row, guess_delimiter, read_rows, without_end
from bert_tf.errors import UserError

_JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
_SHOWN_CHARACTERS = 60
# What files of Excel begin with: those of today, which are zip archives, and those before 2007.
_EXCEL = {
    b"PK\x03\x04": "an Excel workbook or another zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls) or another file of Microsoft Office",
}
# With quotes where another program wrote it again.
_EXCEL_SEPARATOR = re.compile('"?sep=.?"?', re.IGNORECASE)
_OBJECT_ADVICE = 'A line is an object, such as {"text": "...", "label": "..."}'


@dataclass(frozen=True)
class Table:
    """A file that is read.

    Attributes:
        path: of the file.
        rows: all of them, the one with names of columns included; those that are no JSON have as
            many cells as the first one.
        is_json: whether rows are objects.
        is_list: whether the file is one JSON list.
    """

    path: str
    rows: list[Row]
    is_json: bool = False
    is_list: bool = False

    def place(self, row: Row) -> str:
        """Where a row stands, for messages: `train.tsv:12`."""
        return _element(self.path, row.line) if self.is_list else f"{self.path}:{row.line}"


def read_table(path: str, quoted: str = "auto") -> Table:
    r"""Reads a file whose name says what it is.

    `.csv` separates columns by the most frequent of `,`, `;` and tab in its first line; `.jsonl`,
    `.ndjson` and `.json` have an object on each line, the last one may also be one list; anything
    else separates columns by tabs. `.gz` may follow. Lines end by LF or CRLF, a byte order mark at
    the beginning is dropped. Blank lines at the end do not count; in a table of a single column
    those before are empty texts, in JSON lines none counts.

    Args:
        path: the file, in UTF-8.
        quoted: whether cells may stand in quotes (`"`), with delimiters, line ends and doubled
            quotes inside: "yes", "no", or "auto", which is yes for CSV.

    Raises:
        UserError: the file cannot be read, or a line is wrong; the message has the line where the
            row begins.
    """
    ending = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    with files.open_decompressed(path) as file:
        lines = _decoded(path, files.raw_lines(path, file))
        if ending in _JSON_ENDINGS:
            return _read_json(path, lines, ending == ".json")
        is_csv = ending == ".csv"
        in_quotes = quoted == "yes" or (quoted == "auto" and is_csv)
        first = next(lines, "")
        text = first.rstrip("\r\n")
        if is_csv and _EXCEL_SEPARATOR.fullmatch(text):
            raise UserError(
                f"{path}:1: {excerpt(text)} tells Excel the separator and is no row. Remove that "
                "line"
            )
        delimiter = guess_delimiter(first, in_quotes) if is_csv else "\t"
        return Table(path, list(read_rows(path, _with_first(first, lines), delimiter, in_quotes)))


def _decoded(path: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Lines as texts, with their line ends."""
    for number, raw in enumerate(lines, start=1):
        if number == 1 and (kind := _EXCEL.get(raw[:4])):
            raise UserError(f"{path} is {kind}, not a text file: save it as CSV")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(files.explain_encoding(path, number, raw, error)) from error
        if "\0" in line:
            raise UserError(
                f"{path}:{number}: a NUL byte at position {line.index(chr(0)) + 1} of the line. "
                "Remove it, or convert the file where it is UTF-16, for instance with: iconv -f "
                f"utf-16le -t utf-8 {os.path.basename(path)}"
            )
        yield line.removeprefix("\ufeff") if number == 1 else line


def _with_first(first: str, lines: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from lines


def _read_json(path: str, lines: Iterable[str], may_be_list: bool) -> Table:
    if may_be_list:
        lines = list(lines)
        if "".join(lines[:1000]).lstrip().startswith("["):
            return _read_json_list(path, "".join(lines))
    rows = []
    for number, line in enumerate(lines, start=1):
        text = without_end(path, number, line)
        if text.strip():
            place = f"{path}:{number}"
            try:
                cells = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON ({_why(error)}). {_OBJECT_ADVICE}") from error
            rows.append(Row(number, _object(cells, place)))
    return Table(path, rows, is_json=True)


def _read_json_list(path: str, text: str) -> Table:
    try:
        elements = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise UserError(
            f"{path}:{line}: not JSON ({_why(error)}). The file begins as one list of objects; "
            f"otherwise: {_OBJECT_ADVICE}"
        ) from error
    rows = [Row(n, _object(e, _element(path, n))) for n, e in enumerate(elements, start=1)]
    return Table(path, rows, is_json=True, is_list=True)


def _element(path: str, number: int) -> str:
    return f"{path}: element {number}"


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at position {error.colno}"
    return (
        "nested too deep" if isinstance(error, RecursionError) else str(error)[:_SHOWN_CHARACTERS]
    )


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{place}: {excerpt(json.dumps(value))} is not an object. {_OBJECT_ADVICE}")
    return value
