"""Reads tables, keeping file and line for error messages.

`read_table` reads users' tables (TSV, CSV, JSON); `read_tsv` reads files such as GLUE's, as
leniently as the original BERT code.
"""

import contextlib
import csv
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from bert_tf.base import files, text_lines
from bert_tf.base.errors import Place, UserError, excerpt, note, shortened, warn

# Stands for the index of a row's last column, however many columns the row has.
LAST = -1
_JSON_EXTENSIONS = (".json", ".jsonl", ".ndjson")
# Excel's first line, which names the delimiter.
_DELIMITER_LINE = re.compile('"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_QUOTED_CELL = re.compile('"([^"]|"")*"')
_LINES_AHEAD, _LINES_OF_STREAM = 10_000, 100  # in which quotes are looked for
_LINES_OF_ROW = 100  # of a row at their end
_LONG_ROW = 20  # lines; a quote is probably not closed

# Split -> its names in files, the most common first.
SPLIT_NAMES = {
    "train": ("train",),
    "eval": ("dev", "val", "valid", "validation", "eval", "devel", "testa"),
    "predict": ("test", "testb"),
}
# Keys of a table as pandas writes it with orient="split" and "table".
_SPLIT, _TABLE = {"columns", "index", "data"}, {"schema", "data"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: `cells` is a list or, in JSON, a dict; `place` is file and first line."""

    place: Place
    cells: Any


def read_table(
    path: str, quoted: str = "auto", stream: IO[bytes] | None = None, split: str = ""
) -> Iterator[Row]:
    """Yields the rows of a UTF-8 table, including any header; the extension determines the format.

    `.csv`: columns separated by `,`, `;` or tab, whichever is the most frequent in the first line,
    and by spaces after it if the first line has one after each; or by the `x` of a first line
    `sep=x`. JSON, whatever the extension: an object or a list of cells per line, or one value with
    all rows, see `_read_json`; pairs of a text and an object, as for spaCy, get the key
    "text". Others: tab-separated columns. All may be gzipped. A folder has a text per file, and a
    subfolder for each label: the keys of its rows are "text", "label" and "file". Lines end with LF
    or CRLF. A byte order mark and blank lines at the end are ignored. Any other blank line is
    ignored in JSON; in other tables, it is a row with an empty cell.

    Args:
        path: the file.
        quoted: whether cells may be enclosed in quotes (`"`) and then contain delimiters, line
            breaks and doubled quotes: "yes", "no", or "auto". "auto" means "yes" for CSV; if tabs
            separate the columns, only if the first 10,000 lines (of `stream`: 100) have such cells.
        stream: an open file to read instead of `path`, which then is its name in messages.
        split: "train", "eval" or "predict", whose list is read if JSON has one for each split.

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
        first = next(lines, "")
        if extension in _JSON_EXTENSIONS or is_object(first):
            values = _read_json(path, itertools.chain([first], lines), split)
            yield from itertools.starmap(Row, values)
            return
        delimiter, spaced, start = "\t", False, 1
        if extension == ".csv" and (declared := _DELIMITER_LINE.fullmatch(first)):
            delimiter, first, start = declared[1], next(lines, ""), 2
        elif extension == ".csv":
            delimiter, spaced = _guess_style(first, quoted != "no")
        num_ahead = _LINES_OF_STREAM if stream else _LINES_AHEAD
        head = [first, *itertools.islice(lines, num_ahead)]
        is_whole = len(head) <= num_ahead
        is_quoted = quoted == "yes" or delimiter != "\t" or _has_quoted_cells(head, is_whole)
        style = delimiter, is_quoted and quoted != "no", spaced
        for row in _read_rows(path, itertools.chain(head, lines), *style, start):
            yield row if row.cells else Row(row.place, [""])


def _decode(path: str, lines: Iterable[bytes]) -> Iterator[str]:
    for line_number, line in enumerate(text_lines.decode(path, lines), start=1):
        if "\0" in line:
            problem = f"NUL byte at position {line.index(chr(0)) + 1}: the file is not UTF-8"
            raise UserError(problem, at=Place(path, line_number))
        yield line.removeprefix("\ufeff") if line_number == 1 else line


def _guess_style(line: str, quoted: bool) -> tuple[str, bool]:
    """Returns the most frequent of `,`, `;` and tab outside of quotes, and if spaces follow it."""
    unquoted = re.sub(r'"[^"]*("|$)', "", line) if quoted else line
    delimiter = max(",;\t", key=unquoted.count)
    return delimiter, 0 < unquoted.count(delimiter) == unquoted.count(f"{delimiter} ")


def _has_quoted_cells(lines: Sequence[str], is_whole: bool) -> bool:
    """Returns whether quotes enclose cells of tab-separated lines, and are no part of the texts.

    They do if all cells with quotes are enclosed, and any contains doubled quotes or all of the
    first line are enclosed, or all of one of several columns below it; or if only quotes give all
    rows the same number of cells.
    """
    rows = [line.rstrip("\r\n").split("\t") for line in lines]
    cells = [cell for row in rows for cell in row if '"' in cell]
    if all(map(_QUOTED_CELL.fullmatch, cells)):
        data = [row for row in rows[1:] if row != [""]]
        # A few cells may all be quotations.
        columns = zip(*data, strict=False) if len(data) >= 20 else ()
        are_all = any(all('"' in cell for cell in group) for group in (rows[0], *columns))
        return (are_all and len(rows[0]) > 1) or any('""' in cell[1:-1] for cell in cells)
    if len({*map(len, rows)}) == 1:
        return False
    reader, widths, end = csv.reader(lines, delimiter="\t", strict=True), set[int](), 0
    try:
        for row in reader:
            widths |= {len(row)} - {0}
            end = reader.line_num
    except csv.Error:  # unless only the last row, which may go on, is invalid
        if is_whole or len(lines) - end > _LINES_OF_ROW:
            return False
    return len(widths) == 1


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
                row = files.parse_json(text, path) if is_object(text) else {"text": text}
                row["file"] = os.path.join(label, name)
                yield Row(Place(path), {**row, "label": label} if label else row)


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
    start: int = 1,
) -> Iterator[Row]:
    """Yields the rows of a table from its lines, of which the first has the number `start`."""
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    style: Any = {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": spaced}
    reader = csv.reader(lines, strict=True, **style)
    pending: list[Row] = []  # blank lines, which are yielded only if a row follows
    while True:
        first_line = start + reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f'a quote (") is not closed, or text follows it ({error})'
            fix: str | None = "If quotes are part of the text, pass --quoted=no"
            if "new-line" in str(error):
                first_line, problem, fix = start + reader.line_num - 1, "CR without LF", None
            raise UserError(problem, at=Place(path, first_line), fix=fix) from error
        place = Place(path, first_line)
        if quoted and start + reader.line_num - first_line > _LONG_ROW:
            warn(f"the row has more than {_LONG_ROW} lines: is a quote not closed?", at=place)
        pending.append(Row(place, cells))
        if cells:
            yield from pending
            pending.clear()


def _read_json(path: str, lines: Iterable[str], split: str) -> Iterator[tuple[Place, Any]]:
    """Yields the place and the cells of each row, see `read_table`.

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
                raise UserError(f"expected a list of objects. Received: {problem}", at=place)
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
