"""Lines of a user's own table as rows: cells between delimiters, with quotes or without.

A row that is not as wide as the others is mostly a text that was cut at the wrong place.
"""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.data.cell_values import excerpt
from bert_tf.errors import UserError

_DELIMITERS = ",;\t"
# Never gives back what it took: a quote that is open must not be found closed earlier.
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        line: where it begins, from 1 on; its number in the list for JSON that is one list.
        cells: texts from left to right; for JSON the object, key -> value.
    """

    line: int
    cells: Any


def guess_delimiter(line: str, in_quotes: bool) -> str:
    """The most frequent delimiter of a line, outside of quotes where these count."""
    outside = _QUOTED_CELL.sub("", line) if in_quotes else line
    # What follows now is a cell that goes on in the next line.
    outside = outside.partition('"')[0] if in_quotes else outside
    return max(_DELIMITERS, key=outside.count)


def read_rows(path: str, lines: Iterable[str], delimiter: str, in_quotes: bool) -> Iterator[Row]:
    """The rows of a file, all as wide as the first one.

    Args:
        path: of the file, for messages.
        lines: with their ends.
        delimiter: of the cells.
        in_quotes: whether cells may stand in quotes.

    Raises:
        UserError: a row is wrong.
    """
    rows = (_quoted if in_quotes else _plain)(path, lines, delimiter)
    return _of_one_width(path, rows, delimiter)


def _plain(path: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Rows of a file where a quote is a character like others; a blank line has no cells."""
    limit = csv.field_size_limit()
    for number, line in enumerate(lines, start=1):
        text = without_end(path, number, line)
        cells = text.split(delimiter) if text else []
        if len(text) > limit and max(map(len, cells)) > limit:
            raise _too_long(f"{path}:{number}")
        yield Row(number, cells)


def without_end(path: str, number: int, line: str) -> str:
    """A line without its LF or CRLF.

    Raises:
        UserError: it has a CR elsewhere.
    """
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
    elif width == 1:
        # Nothing in the first line said what separates, so the most usual sign was taken.
        advice = (
            f"The first line has one column: a text with {delimiter!r} inside must stand in "
            "quotes; or call the file .tsv, where only tabs separate columns"
        )
    else:
        advice = (
            f"Columns are separated by {delimiter!r}, the most frequent sign of the first line: a "
            "text that has one inside must stand in quotes"
        )
    found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
    shown = excerpt(delimiter.join(cells))
    return UserError(f"{place}: {found}, but {width} in the first row: {shown}. {advice}")
