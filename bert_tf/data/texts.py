"""Streams unlabeled texts and text pairs from the lines or the columns of a file."""

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf import files, text_lines
from bert_tf.data.tables import Row, read_tsv, require_columns
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

STDIN = "-"
# The first group is greedy, so that a line with several separators is split at the last.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")
_JSON_OBJECT = re.compile(r"\s*\{.*\}\s*")


class Text(NamedTuple):
    """A text, or a pair of texts; `text_b` is None for a single text."""

    text_a: str
    text_b: str | None = None


def read_lines(path: str) -> Iterator[Text]:
    """Yields one text, or one pair `A ||| B`, per line of a file.

    As in the original BERT code, lines are stripped, a blank line is an empty text, and the
    separator includes the spaces around `|||`.
    """
    for line in lines(path):
        line = line.strip()
        pair = _PAIR.fullmatch(line)
        yield Text(*pair.groups()) if pair else Text(line)


def read_columns(
    path: str, text_column: str, text_pair_column: str | None, has_header: bool
) -> Iterator[Text]:
    """Yields the texts of a tab-separated file; a column is a header name or a number from 1 on."""
    rows = read_tsv(path, lines(path))
    header = next(rows, None) if has_header else None
    passed = {"the text": text_column, "the second text": text_pair_column}
    columns = {
        purpose: _find_column(column, header, path)
        for purpose, column in passed.items()
        if column is not None
    }
    for row in rows:
        require_columns(row, columns, "text input")
        yield Text(*(row.cells[column] for column in columns.values()))


def _find_column(column: str, header: Row | None, path: str) -> int:
    if column.isdecimal():
        return int(column) - 1
    names = header.cells if header else []
    if column not in names:
        problem = f"there is no column {column!r}. The tab-separated columns are"
        raise UserError(f"{path}:1: {problem}: {', '.join(names)}")
    return names.index(column)


def lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, or of standard input for `-`."""
    if path != STDIN:
        return files.read_lines(path)
    if sys.stdin is None:  # Closed by the parent process.
        raise UserError("Standard input is closed: pass a file name")
    name = display_name(path)
    return text_lines.read(name, sys.stdin.buffer)


def warn_about_columns(path: str, lines: Sequence[str]) -> None:
    """Warns if most lines of a text corpus are JSON or tab-separated columns."""
    num_tabular = sum("\t" in line.strip() or bool(_JSON_OBJECT.fullmatch(line)) for line in lines)
    if 2 * num_tabular > sum(map(bool, map(str.strip, lines))):
        _logger.warning("%s: %d lines are JSON or have tabs; pass plain text", path, num_tabular)


def display_name(path: str) -> str:
    """Returns a file's name for messages; for `-` it is `<stdin>`."""
    return "<stdin>" if path == STDIN else path
