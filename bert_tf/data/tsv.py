"""Reads tab-separated files such as GLUE's, keeping line numbers for error messages."""

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bert_tf import files
from bert_tf.data.cell_values import counted, excerpt
from bert_tf.errors import UserError

LAST = -1
"""The last column of a row, whatever its number of columns."""


@dataclass(frozen=True, slots=True)
class TsvRow:
    """A row: `line` is the 1-based number of its first line, `cells` its columns."""

    line: int
    cells: list[str]


def read_tsv(path: str, lines: Iterator[str] | None = None) -> Iterator[TsvRow]:
    """Yields the rows of a tab-separated UTF-8 file, or of its `lines`.

    Quotes are part of the text and never join lines: GLUE files contain many unpaired ones. As in
    the original, only LF ends a row, and every CR is deleted. A byte order mark is dropped. A blank
    line is a row without cells; at the end, blank lines are ignored.
    """
    lines = files.read_lines(path) if lines is None else lines
    first = next(lines, "").removeprefix("\ufeff")
    return read_rows(path, itertools.chain([first], lines))


def read_rows(
    path: str, lines: Iterable[str], delimiter: str = "\t", quoted: bool = False
) -> Iterator[TsvRow]:
    """Yields the rows of a table from its lines; blank lines as in `read_tsv`."""
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    pending: list[TsvRow] = []  # blank lines, and the row after them
    while True:
        first_line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _csv_error(path, first_line, reader.line_num, error) from error
        pending.append(TsvRow(first_line, cells))
        if cells:
            yield from pending
            pending.clear()


def _csv_error(path: str, first_line: int, last_line: int, error: csv.Error) -> UserError:
    reason = str(error)
    if "new-line" in reason:
        advice = "Remove it; if lines end with CR, convert the file with: tr '\\r' '\\n'"
        return UserError(f"{path}:{last_line}: CR without LF in the line. {advice}")
    if "limit" in reason:
        limit = csv.field_size_limit()
        problem = (
            f"a cell has more than {limit} characters. Is a line end or a closing quote missing?"
        )
    elif "unexpected end" in reason:
        problem = 'a quote (") opened in this row is not closed.'
    else:
        problem = f"text after a closing quote in this row ({reason}). Write quotes in text twice."
    advice = "If quotes in this file are part of the text, pass --quoted=no"
    return UserError(f"{path}:{first_line}: {problem} {advice}")


def require_columns(row: TsvRow, columns: Mapping[str, int], path: str, owner: str) -> None:
    """Raises a UserError if a row has too few columns.

    `columns` maps the purpose of a column to its 0-based index, or `LAST`. `path` and `owner`, such
    as "task cola", appear in the message.
    """
    needed = max(0, *columns.values()) + 1
    if len(row.cells) >= needed:
        return
    expected = f"{owner} needs at least {counted(needed, 'column')} ({_describe(columns)})"
    if not row.cells:
        raise UserError(f"{path}:{row.line}: the line is empty, but {expected}. Remove it")
    text = "\t".join(row.cells)
    hint = "Columns must be separated by tabs. For your own files, use --task_name=tsv"
    if len(row.cells) == 1 and ("," in text or ";" in text):
        hint = f"Is this a CSV file? {hint}"
    actual = f"found {len(row.cells)}: {excerpt(text)}"
    raise UserError(f"{path}:{row.line}: {expected}, {actual}. {hint}")


def _describe(columns: Mapping[str, int]) -> str:
    in_order = sorted(columns.items(), key=lambda item: (item[1] == LAST, item[1]))
    return ", ".join(
        f"{purpose} in the last column" if column == LAST else f"{purpose} in column {column + 1}"
        for purpose, column in in_order
    )
