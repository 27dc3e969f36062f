"""Strict reader of delimited files: all rows have the same width, and errors name their line."""

import csv
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf.data.cell_values import excerpt
from bert_tf.errors import UserError


@dataclass(frozen=True, slots=True)
class Row:
    """A row; `place` is the file and line where it begins, `cells` a list, or a dict for JSON."""

    place: str
    cells: Any


def guess_delimiter(line: str, quoted: bool) -> str:
    """Returns the most frequent of comma, semicolon and tab in a line, outside of quotes."""
    outside = re.sub(r'"[^"]*("|$)', "", line) if quoted else line
    return max(",;\t", key=outside.count)


def read_csv(path: str, lines: Iterable[str], delimiter: str, quoted: bool) -> Iterator[Row]:
    """Yields the rows of a file, given its lines with line ends.

    Blank lines at the end are ignored; in a table of one column those before are empty texts.
    """
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    width = 0
    blank: list[Row] = []
    while True:
        first_line = reader.line_num + 1
        place = f"{path}:{first_line}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _explained(path, first_line, reader.line_num, error) from error
        if not cells:
            blank.append(Row(place, [""]))
            continue
        width = width or len(cells)
        if blank and width > 1:
            raise UserError(f"{blank[0].place}: the line is empty. Remove it")
        yield from blank
        blank.clear()
        if len(cells) != width:
            raise _wrong_width(place, cells, width, delimiter)
        yield Row(place, cells)


def _explained(path: str, first_line: int, last_line: int, error: csv.Error) -> UserError:
    reason = str(error)
    if "new-line" in reason:
        name = os.path.basename(path)
        return UserError(
            f"{path}:{last_line}: a CR without a LF in the line. Remove it; if CRs end the lines, "
            f"convert the file, for instance with: tr '\\r' '\\n' < {name} > new_{name}"
        )
    advice = "If quotes are part of the text in this file, pass --quoted=no"
    if "limit" in reason:
        problem = f"a cell of more than {csv.field_size_limit()} characters"
        advice = f"Is a line end, a delimiter or a closing quote missing? {advice}"
    elif "unexpected end" in reason:
        problem = 'a quote (") that opens in this row is not closed'
    else:
        problem = f"text after a closing quote in this row ({reason})"
        advice = f"Inside of quotes, write a quote twice. {advice}"
    return UserError(f"{path}:{first_line}: {problem}. {advice}")


def _wrong_width(place: str, cells: list[str], width: int, delimiter: str) -> UserError:
    found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
    shown = excerpt(delimiter.join(cells))
    return UserError(
        f"{place}: {found}, but {width} in the first row: {shown}. Columns are separated by "
        f"{delimiter!r}: remove it from the text, or enclose the text in quotes "
        "(pass --quoted=yes for a .tsv file); call a file with commas .csv, one with tabs .tsv"
    )
