"""Reads texts and their ids: from tables, from JSON, or a text per line."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from bert_tf.base import files, text_lines
from bert_tf.base.errors import UserError, Where, brief, excerpt, shortened
from bert_tf.tables.columns import read_cells, to_text
from bert_tf.tables.read import Row, read_table

STDIN = "-"
# Place (file and line), id, and text.
Identified = tuple[Where, str, str]
# The keys of ids in JSON, those of BEIR first.
_ID_KEYS = ("_id", "id")


def display_name(path: str) -> str:
    """Returns a file's name for messages; for `-` it is `<stdin>`."""
    return "<stdin>" if path == STDIN else path


def lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, or of standard input for `-`."""
    if path != STDIN:
        return files.read_lines(path)
    return text_lines.read(display_name(path), _standard_input())


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:  # Closed by the parent process.
        raise UserError("Standard input is closed: pass a file name")
    return sys.stdin.buffer


def _read_table(path: str, quoted: str = "auto") -> Iterator[Row]:
    stream = _standard_input() if path == STDIN else None
    return read_table(display_name(path), quoted, stream)


def read_rows(
    path: str,
    columns: Mapping[str, str],
    quoted: str = "auto",
    has_header: str = "auto",
    split: str = "",
) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yields the place (file and line) of each row of a table, and purpose -> its cell.

    Args:
        path: the file; `-`: standard input.
        columns: purpose -> name, JSON path or 1-based number of a column, such as that of the flag
            --text_column for "text".
        quoted: see `read_table`.
        has_header: see `read_cells`.
        split: the split for which messages say how to pass another column.
    """
    rows = _read_table(path, quoted)
    return read_cells(display_name(path), rows, columns, has_header, split)


def read_columns(
    path: str, columns: Mapping[str, str | None], quoted: str = "auto", has_header: str = "auto"
) -> Iterator[tuple[Where, dict[str, str]]]:
    """Yields the place of each row of a table, and purpose -> its text; see `read_rows`.

    A column that is None or empty is not read.
    """
    used = {purpose: column for purpose, column in columns.items() if column}
    for place, cells in read_rows(path, used, quoted, has_header):
        yield place, {purpose: to_text(cell, purpose, place) for purpose, cell in cells.items()}


def read_texts(path: str, fix: str | None = None) -> Iterator[Identified]:
    """Yields place, id and text of each row of a file without named columns; "" for no id.

    A JSON object has the key `text`; and, if any, `_id` or `id`, and `title`, which precedes the
    text, as in BEIR's files. Other lines have an id, a tab and a text, as in MS MARCO's, or a text.

    Raises:
        UserError: the file is missing or invalid; `fix` says what else to do about other columns.
    """
    rows = _read_table(path)
    first = next(rows, None)
    if first and isinstance(first.cells, list) and len(first.cells) <= 2:
        columns = {"id": "1", "text": "2"} if len(first.cells) == 2 else {"text": "1"}
        for place, cells in read_cells(path, itertools.chain([first], rows), columns):
            yield place, cells.get("id", ""), cells["text"]
        return
    for row in itertools.chain([first] if first else [], rows):
        if not isinstance(row.cells, dict) or "text" not in row.cells:
            expected = "expected an object with the keys _id and text, or the columns id and text"
            received = f"Received: {shortened(brief(map(str, row.cells)))}"
            raise UserError(f"{expected}. {received}", at=row.place, fix=fix)
        key = next((name for name in _ID_KEYS if name in row.cells), "_id")
        cells = {name: row.cells.get(name) or "" for name in (key, "title", "text")}
        id_, title, text = (to_text(x, name, row.place) for name, x in cells.items())
        yield row.place, id_, f"{title} {text}".strip()


def with_distinct_ids(texts: Iterable[Identified]) -> Iterator[Identified]:
    """Yields (place, id, text); raises a UserError for an id that occurs twice."""
    known: set[str] = set()
    for place, key, text in texts:
        if key in known:
            raise UserError(f"the id {excerpt(key)} occurs a second time", at=place)
        known.add(key)
        yield place, key, text
