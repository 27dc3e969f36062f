"""Tables of a user's own: TSV, CSV or JSON lines, as rows that know where they stand.

The sets that everybody has are read by `tsv`, as the original does it. Here nothing is passed over
in silence: a row that is not like the others is mostly a text that was cut at the wrong place.
"""

import csv
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

_JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
_DELIMITERS = ",;\t"
_SHOWN_CHARACTERS = 60
# Never gives back what it took: a quote that is open must not be found closed earlier.
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_OBJECT_ADVICE = 'A line is an object, such as {"text": "...", "label": "..."}'


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        line: where it begins, from 1 on; its number in the list for JSON that is one list.
        cells: texts from left to right; for JSON the object, key -> value.
    """

    line: int
    cells: Any


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
        lines = _decoded(path, file)
        if ending in _JSON_ENDINGS:
            return _read_json(path, lines, ending == ".json")
        is_csv = ending == ".csv"
        in_quotes = quoted == "yes" or (quoted == "auto" and is_csv)
        first = next(lines, "")
        lines = _with_first(first, lines)
        delimiter = _delimiter(first, in_quotes) if is_csv else "\t"
        rows = (_quoted if in_quotes else _plain)(path, lines, delimiter)
        return Table(path, list(_of_one_width(path, rows, delimiter)))


def text_of(value: Any, what: str, place: str) -> str:
    """A cell as a text: numbers in JSON as they are written, whole ones without a fraction.

    Args:
        value: of a row's cell.
        what: what it stands for, for messages: "text".
        place: where it stands, for messages.

    Raises:
        UserError: it is nothing, or nothing that can be a text.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{place}: the {what} has half of a character (\\ud800 to \\udfff, alone): "
                "correct or remove the line"
            ) from None
        return value
    if value is None:
        raise UserError(f"{place}: the {what} is missing (null). Correct or remove the line")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(
            f"{place}: the {what} is {value}, which stands for nothing: remove the line"
        )
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    if isinstance(value, int):
        return str(value)
    raise UserError(
        f"{place}: the {what} is {beginning(json.dumps(value))}. Write it as a text, in quotes"
    )


def beginning(text: str) -> str:
    """The first characters of a text, on one line."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def _decoded(path: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Lines as texts, with their line ends."""
    for number, raw in enumerate(lines, start=1):
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


def _delimiter(line: str, in_quotes: bool) -> str:
    """The most frequent delimiter of a line, outside of quotes where these count."""
    outside = _QUOTED_CELL.sub("", line) if in_quotes else line
    # What follows now is a cell that goes on in the next line.
    outside = outside.partition('"')[0] if in_quotes else outside
    return max(_DELIMITERS, key=outside.count)


def _plain(path: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Rows of a file where a quote is a character like others; a blank line has no cells."""
    limit = csv.field_size_limit()
    for number, line in enumerate(lines, start=1):
        text = _without_end(path, number, line)
        cells = text.split(delimiter) if text else []
        if len(text) > limit and max(map(len, cells)) > limit:
            raise _too_long(f"{path}:{number}")
        yield Row(number, cells)


def _without_end(path: str, number: int, line: str) -> str:
    text = line.removesuffix("\n").removesuffix("\r")
    if "\r" in text:
        raise _lone_cr(path, number, line)
    return text


def _lone_cr(path: str, number: int, line: str) -> UserError:
    if number == 1 and not line.endswith("\n"):
        name = os.path.basename(path)
        advice = f"Convert the file, for instance with: tr '\\r' '\\n' < {name} > new_{name}"
    else:
        advice = "Remove it"
    return UserError(
        f"{path}:{number}: a CR without a LF in the line, as old Macs end their lines. {advice}"
    )


def _too_long(place: str) -> UserError:
    return UserError(
        f"{place}: a cell of more than {csv.field_size_limit()} characters. A text of that length "
        "is mostly a missing line end or delimiter: correct the line, or shorten its text"
    )


def _quoted(path: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Rows of a file where cells may stand in quotes; a blank line has no cells."""
    taken: list[str] = []

    def remembered() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    reader = csv.reader(remembered(), delimiter=delimiter, strict=True)
    while True:
        first = reader.line_num + 1
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _explained(path, first, taken, delimiter, error) from error
        yield Row(first, cells)


def _explained(
    path: str, first: int, taken: Sequence[str], delimiter: str, error: csv.Error
) -> UserError:
    """What is wrong with a row, by the csv module's word for it.

    Args:
        path: the file.
        first: the row's first line.
        taken: its lines, as far as they were read.
        delimiter: of the cells.
        error: of the csv module.
    """
    advice = "If quotes are characters like others in this file, pass --quoted=no"
    opened = _open_quote("".join(taken), delimiter)
    if "new-line" in str(error):
        return _lone_cr(path, first + len(taken) - 1, taken[-1])
    if opened is not None:
        line = first + "".join(taken).count("\n", 0, opened)
        return UserError(f'{path}:{line}: the quote (") that opens here is not closed. {advice}')
    if "limit" in str(error):
        return _too_long(f"{path}:{first}")
    return UserError(
        f"{path}:{first}: in the row that begins here something follows a closing quote ({error}). "
        f"A quote inside of quotes is written twice. {advice}"
    )


def _open_quote(text: str, delimiter: str) -> int | None:
    """Where the quote stands that is still open at the end of a row; None if there is none."""
    border = re.compile(f"[{delimiter}\n]")
    position = 0
    while position < len(text):
        if text[position] == '"':
            cell = _QUOTED_CELL.match(text, position)
            if cell is None:
                return position
            position = cell.end()
        end = border.search(text, position)
        position = end.end() if end else len(text)
    return None


def _of_one_width(path: str, rows: Iterable[Row], delimiter: str) -> Iterator[Row]:
    """Refuses rows that have not as many cells as the first one."""
    width: int | None = None
    blank: list[Row] = []
    for row in rows:
        if not row.cells:
            blank.append(row)
            continue
        width = len(row.cells) if width is None else width
        if blank and width > 1:
            raise UserError(f"{path}:{blank[0].line}: the line is empty. Remove it")
        yield from (Row(empty.line, [""]) for empty in blank)
        blank.clear()
        if len(row.cells) != width:
            raise _other_width(f"{path}:{row.line}", row.cells, width, delimiter)
        yield row


def _other_width(place: str, cells: list[str], width: int, delimiter: str) -> UserError:
    if delimiter == "\t":
        advice = (
            "A tab inside of a text separates columns, too: remove it; pass --quoted=yes if cells "
            "stand in quotes; call a file with commas .csv"
        )
    else:
        advice = (
            f"Columns are separated by {delimiter!r}, the most frequent sign of the first line: a "
            "text that has one inside must stand in quotes"
        )
    found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
    shown = beginning(delimiter.join(cells))
    return UserError(f"{place}: {found}, but {width} in the first row: {shown}. {advice}")


def _read_json(path: str, lines: Iterable[str], may_be_list: bool) -> Table:
    if may_be_list:
        lines = list(lines)
        if "".join(lines[:1000]).lstrip().startswith("["):
            return _read_json_list(path, "".join(lines))
    rows = []
    for number, line in enumerate(lines, start=1):
        text = _without_end(path, number, line)
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
        raise UserError(
            f"{place}: {beginning(json.dumps(value))} is not an object. {_OBJECT_ADVICE}"
        )
    return value
