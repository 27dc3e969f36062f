"""Unlabeled texts and text pairs from lines or columns of a file, read one by one."""

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf import files, text_lines
from bert_tf.data.tsv import TsvRow, read_tsv, require_columns
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

STDIN = "-"
# The last separator of a line counts.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")


class Text(NamedTuple):
    """A text, or a pair of texts; `text_b` is None for a single text."""

    text_a: str
    text_b: str | None = None


def read_lines(path: str) -> Iterator[Text]:
    """Yields the text, or the pair `A ||| B`, of each line of a file.

    As in the original, lines are stripped, a blank line is an empty text, and ` ||| ` needs a
    space on each side.
    """
    for line in lines(path):
        line = line.strip()
        pair = _PAIR.fullmatch(line)
        yield Text(*pair.groups()) if pair else Text(line)


def read_columns(
    path: str, text_column: str, text_pair_column: str | None, has_header: bool
) -> Iterator[Text]:
    """Yields the texts of a tab-separated file; columns are header names or 1-based numbers."""
    rows = read_tsv(path, lines(path))
    header = next(rows, None) if has_header else None
    wanted = {"the text": text_column, "the second text": text_pair_column}
    columns = {
        what: _position(name, header, path) for what, name in wanted.items() if name is not None
    }
    for row in rows:
        require_columns(row, columns, path, "texts")
        yield Text(*(row.cells[column] for column in columns.values()))


def _position(column: str, header: TsvRow | None, path: str) -> int:
    if column.isdecimal():
        return int(column) - 1
    names = header.cells if header else []
    if column not in names:
        found = ", ".join(names)
        raise UserError(
            f"{path}:1: there is no column {column!r}, only {found}; tabs separate them"
        )
    return names.index(column)


def lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, or of the standard input for `-`."""
    if path != STDIN:
        return files.read_lines(path)
    if sys.stdin is None:  # Closed by the parent process.
        raise UserError("There is no standard input: pass the name of a file")
    name = display_name(path)
    return text_lines.decode(name, text_lines.split(name, sys.stdin.buffer))


def warn_of_columns(path: str, lines: Sequence[str]) -> None:
    """Warns about the lines of a corpus if most of them have JSON or columns."""
    odd = sum("\t" in line.strip() or bool(re.fullmatch(r"\s*\{.*\}\s*", line)) for line in lines)
    if 2 * odd > sum(map(bool, map(str.strip, lines))):
        _logger.warning("%s: %d lines are JSON or have tabs. Write the texts only", path, odd)


def display_name(path: str) -> str:
    """Returns the name of a file for messages."""
    return "<stdin>" if path == STDIN else path
