"""Reads tables, keeping file and line for error messages.

`read_table` reads users' tables (TSV, CSV, JSON lines); `read_tsv` reads files such as GLUE's, as
leniently as the original BERT code.
"""

import contextlib
import csv
import itertools
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from bert_tf.base import files, text_lines
from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, note, shortened, warn

_logger = logging.getLogger(__name__)

# Stands for the index of a row's last column, however many columns the row has.
LAST = -1
# A row with more lines may be several rows between two stray quotes.
_MANY_LINES = 20
_JSON_EXTENSIONS = (".json", ".jsonl", ".ndjson")
# Keys with orient="split" and "table".
_LAYOUTS_OF_PANDAS = ({"columns", "index", "data"}, {"schema", "data"})
_OBJECT_ADVICE = (
    '. Each line must be an object, such as {"text": "...", "label": "..."}; a .json file may also '
    "be a list of objects"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: `cells` is a list or, in JSON, a dict; `place` is file and first line."""

    place: Place
    cells: Any


def read_table(
    path: str, quoted: str = "auto", stream: IO[bytes] | None = None, num_used: int = 0
) -> Iterator[Row]:
    """Yields the rows of a UTF-8 table, including any header; the extension determines the format.

    `.csv`: columns separated by `,`, `;` or tab, whichever is the most frequent in the first line,
    and by spaces after it if the first line has one after each;
    JSON, whatever the extension: one object per line, or a list of objects, or of pairs of a text
    and an object, as for spaCy, whose texts get the key "text"; others: tab-separated columns. All
    may be gzipped. A folder has a text per file, and a subfolder for each label: the
    keys of its rows are "text", "label" and "file". Lines end with LF or CRLF. A byte order mark
    and blank lines at the end are ignored. Any other blank line is ignored in JSON, is an empty
    text in a table with one column, and is an error in other tables.

    Args:
        path: the file.
        quoted: whether cells may be enclosed in quotes (`"`) and then contain delimiters, line
            breaks and doubled quotes: "yes", "no", or "auto", which means "yes" for CSV.
        stream: an open file to read instead of `path`, which then is its name in messages.
        num_used: number of columns that are read; 0 if they are given by name. If the first row has
            more than twice as many, further cells of other rows are left out, with a warning;
            otherwise, they are probably part of a text, and an error.

    Raises:
        UserError: the file cannot be read, or a row is invalid; the message names the line.
    """
    if not stream and files.list_dir(path):
        yield from _read_folder(path)
        return
    extension = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    opened = contextlib.nullcontext(stream) if stream else files.open_decompressed(path)
    with opened as file:
        lines = _decode(path, text_lines.split(path, file))
        is_csv = extension == ".csv"
        is_quoted = is_csv if quoted == "auto" else quoted == "yes"
        first = next(lines, "")
        if extension in _JSON_EXTENSIONS or is_object(first):
            yield from _read_json(path, itertools.chain([first], lines))
            return
        if re.fullmatch(r"\s*<(!doctype )?html\b[^>\t]*>\s*", first, re.IGNORECASE):
            advice = "Download the file itself, not the page about it"
            raise UserError(f"{path}:1: this is a web page: {excerpt(first.strip())}", fix=advice)
        if is_csv and re.fullmatch('"?sep=.?"?', first.rstrip("\r\n"), re.IGNORECASE):
            line = excerpt(first.rstrip("\r\n"))
            raise UserError(
                f"{path}:1: {line} is Excel's delimiter declaration", fix="Remove the line"
            )
        delimiter, spaced = _guess_style(first, is_quoted) if is_csv else ("\t", False)
        rows = _read_rows(path, itertools.chain([first], lines), delimiter, is_quoted, spaced)
        yield from _check_rows(rows, delimiter, is_quoted, num_used)


def _decode(path: str, lines: Iterable[bytes]) -> Iterator[str]:
    for line_number, line in enumerate(text_lines.decode(path, lines), start=1):
        if "\0" in line:
            problem = f"NUL byte at position {line.index(chr(0)) + 1}. Is it a text file?"
            endian = "be" if line_number == 1 and line[0] == "\0" else "le"
            command = f"iconv -f utf-16{endian} -t utf-8 {os.path.basename(path)}"
            raise UserError(
                f"{problem} If it is UTF-16, convert it with: {command}",
                at=Place(path, line_number),
            )
        yield line.removeprefix("\ufeff") if line_number == 1 else line


def _guess_style(line: str, quoted: bool) -> tuple[str, bool]:
    """Returns the most frequent of `,`, `;` and tab outside of quotes, and if spaces follow it."""
    unquoted = re.sub(r'"[^"]*("|$)', "", line) if quoted else line
    delimiter = max(",;\t", key=unquoted.count)
    return delimiter, 0 < unquoted.count(delimiter) == unquoted.count(f"{delimiter} ")


def _check_rows(rows: Iterator[Row], delimiter: str, quoted: bool, num_used: int) -> Iterator[Row]:
    """Yields rows; raises a UserError if one has more or fewer columns than the first."""
    rows, rows_ahead = itertools.tee(rows)
    first = next((row.cells for row in rows_ahead if row.cells), [""])
    width = len(first)
    del rows_ahead  # so that the rows are not kept for it
    longer: list[Place] = []  # places
    for row in rows:
        # In a table with one column, a blank line is an empty text.
        cells = row.cells or [""]
        if not row.cells and width > 1:
            raise UserError("the line is empty", at=row.place, fix="Remove the line")
        if len(cells) < width or (len(cells) > width and not 0 < 2 * num_used < width):
            raise _width_error(row.place, cells, first, delimiter, quoted)
        if len(cells) > width:
            longer.append(row.place)
        yield Row(row.place, cells[:width])
    if longer:
        problem = f"have more columns than the first row ({width})"
        advice = "The rest is left out; if it belongs to a text, remove the separator from the text"
        warn(f"{longer[0]}: {counted(len(longer), 'row', problem)}", fix=advice)


# Only run_classifier.py has the flag.
_UNQUOTED = "pass --quoted=no (run_classifier.py), or convert the file to JSON lines"
BAR_HINT = "If | separates columns, replace it with tabs, and name the file .tsv"


def _width_error(
    place: Where, cells: list[str], first: list[str], delimiter: str, quoted: bool
) -> UserError:
    columns, row = counted(len(cells), "column"), excerpt(delimiter.join(cells))
    problem = f"{columns}, but {len(first)} in the first row. This row: {row}"
    separator = f"{problem}. The column separator is {delimiter!r}"
    if len(first) == 1 and "|" in first[0]:
        return UserError(separator, at=place, fix=BAR_HINT)
    is_single = any(cell.startswith("'") for cell in cells)
    quotes = "double quotes (single ones do not enclose cells)" if is_single else "quotes"
    advice = f"remove it from the text, name all columns, or enclose the text in {quotes}"
    if len(cells) < len(first):
        advice = "add the missing cells, or enclose a text with line breaks in quotes"
    if not quoted:
        advice += " and pass --quoted=yes (run_classifier.py)"
    if delimiter == "\t" and ".csv" not in str(place):
        advice += ". If commas separate columns, name the file .csv"
    return UserError(f"{separator}: {advice}", at=place)


def is_object(line: str) -> bool:
    """Returns whether a line is a whole JSON object."""
    with contextlib.suppress(ValueError, RecursionError):
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    return False


def _read_folder(folder: str) -> Iterator[Row]:
    """Yields a row for each file of a folder, or of its subfolders, which are labels."""
    names = [name for name in files.list_dir(folder) if not name.startswith(".")]
    labels = [name for name in names if files.is_dir(os.path.join(folder, name))]
    if labels and len(labels) < len(names):
        others = shortened([name for name in names if name not in labels], 5)
        note(f"{folder}: only its subfolders are read, not {others}")
    for label in labels or [""]:
        parent = os.path.join(folder, label)
        for name in files.list_dir(parent) if label else names:
            if not name.startswith("."):
                path = os.path.join(parent, name)
                text = files.read_text(path).removeprefix("\ufeff")
                if is_object(text):
                    advice = "Join such files: write a line for each row into one file"
                    raise UserError("a JSON object, not a text", at=path, fix=advice)
                row = {"text": text, "file": os.path.join(label, name)}
                yield Row(Place(path), {**row, "label": label} if label else row)


def _read_json(path: str, lines: Iterator[str]) -> Iterator[Row]:
    lines, ahead = itertools.tee(lines)
    is_list = next(filter(str.strip, ahead), "").lstrip().startswith("[")
    del ahead  # so that the lines are not kept for it
    if is_list:
        values = files.parse_json("".join(lines), path, advice=_OBJECT_ADVICE)
        for position, value in enumerate(values, start=1):
            yield _json_row(value, Place(path, position, is_element=True))
        return
    for line_number, line in enumerate(lines, start=1):
        if line.strip():
            place = Place(path, line_number)
            try:
                value = files.parse_json(line.rstrip(), path, line_number, _OBJECT_ADVICE)
            except UserError:
                text = line + "".join(lines)
                if not is_object(text):
                    raise
                lists = [key for key, x in json.loads(text).items() if isinstance(x, list)]
                advice = f". If {lists[0]!r} has the rows, save only this list" if lists else ""
                raise UserError(f"one object{_OBJECT_ADVICE}{advice}", at=place) from None
            yield _json_row(value, place)


def _json_row(value: Any, place: Place) -> Row:
    # Training data of spaCy: a text, and an object with its labels.
    if isinstance(value, list) and [*map(type, value)] == [str, dict]:
        value = {"text": value[0], **value[1]}
    if not isinstance(value, dict):
        raise UserError(f"{excerpt(json.dumps(value))} is not an object{_OBJECT_ADVICE}", at=place)
    columns = value and all(isinstance(x, dict) and "0" in x for x in value.values())
    rows = "0" in value and all(k.isdecimal() and isinstance(x, dict) for k, x in value.items())
    if columns or rows or value.keys() in _LAYOUTS_OF_PANDAS:
        kind = "rows" if rows else "columns"
        advice = 'Write rows: to_json(FILE, orient="records", lines=True)'
        raise UserError(f"an object of {kind}, as pandas writes it", at=place, fix=advice)
    return Row(place, value)


def read_tsv(path: str) -> Iterator[Row]:
    """Yields the rows of a tab-separated UTF-8 file.

    Quotes are part of the text and never join lines, because GLUE files have many unpaired quotes.
    As in the original BERT code, only LF ends a row, and every CR is deleted. A byte order mark is
    dropped. A blank line is a row without cells, but blank lines at the end are ignored.
    """
    lines = files.read_lines(path)
    first = next(lines, "").removeprefix("\ufeff")
    return _read_rows(path, itertools.chain([first], lines))


def _read_rows(
    path: str,
    lines: Iterable[str],
    delimiter: str = "\t",
    quoted: bool = False,
    spaced: bool = False,
) -> Iterator[Row]:
    """Yields the rows of a table from its lines; treats blank lines like `read_tsv`."""
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    style: Any = {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": spaced}
    reader = csv.reader(lines, strict=True, **style)
    pending: list[Row] = []  # blank lines, which are yielded only if a row follows
    most_lines = (0, Place(path))
    while True:
        first_line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            if most_lines[0] > _MANY_LINES:
                advice = f"If its quotes are part of the text, {_UNQUOTED}"
                warn(f"the row has {most_lines[0]} lines", at=most_lines[1], fix=advice)
            return
        except csv.Error as error:
            raise _csv_error(path, first_line, reader.line_num, error) from error
        pending.append(Row(Place(path, first_line), cells))
        most_lines = max(most_lines, (reader.line_num - first_line + 1, pending[-1].place))
        if cells:
            yield from pending
            pending.clear()


def _csv_error(path: str, first_line: int, last_line: int, error: csv.Error) -> UserError:
    reason = str(error)
    if "new-line" in reason:
        advice = "Remove the CR; if all lines end with CR, convert the file with: tr '\\r' '\\n'"
        return UserError("CR without LF in the line", at=Place(path, last_line), fix=advice)
    if "limit" in reason:
        limit = csv.field_size_limit()
        problem = (
            f"a cell has more than {limit} characters. Is a line end or a closing quote missing?"
        )
    elif "unexpected end" in reason:
        problem = 'a quote (") opened in this row is not closed.'
    else:
        problem = f"text after a closing quote in this row ({reason}). Write inner quotes twice."
    advice = f"If quotes in this file are part of the text, {_UNQUOTED}"
    return UserError(f"{problem} {advice}", at=Place(path, first_line))


def require_columns(row: Row, columns: Mapping[str, int], task: str) -> None:
    """Raises a UserError if a row has too few columns for a task.

    `columns` maps the purpose of a column to its index, counted from 0, or `LAST`.
    """
    needed = max(0, *columns.values()) + 1
    if len(row.cells) >= needed:
        return
    expected = f"task {task} needs at least {counted(needed, 'column')} ({_describe(columns)})"
    if not row.cells:
        raise UserError(f"the line is empty, but {expected}", at=row.place, fix="Remove the line")
    text = "\t".join(row.cells)
    actual = f"found {len(row.cells)}: {excerpt(text)}"
    advice = "Columns must be separated by tabs, not commas. For your own files, such as CSV files"
    raise UserError(f"{expected}, {actual}", at=row.place, fix=f"{advice}, use --task_name=tsv")


def _describe(columns: Mapping[str, int]) -> str:
    in_order = sorted(columns.items(), key=lambda item: (item[1] == LAST, item[1]))
    return ", ".join(
        f"{purpose} in the last column" if column == LAST else f"{purpose} in column {column + 1}"
        for purpose, column in in_order
    )
