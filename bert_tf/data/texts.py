"""Streams unlabeled texts and text pairs from the lines or the columns of a file."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from bert_tf import lint
from bert_tf.base import files, text_lines
from bert_tf.base.errors import UserError, Where, counted
from bert_tf.tables.columns import num_numbers, read_cells, to_text
from bert_tf.tables.read import read_table

STDIN = "-"
# The first group is greedy, so that a line with several separators is split at the last.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")
_TABLE = re.compile(r"\.(csv|jsonl?|ndjson)(\.gz)?$")


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
    path: str, columns: Mapping[str, str | None], has_header: str = "auto"
) -> Iterator[tuple[Where, dict[str, str]]]:
    """Yields the place (file and line) of each row of a table, and purpose -> the text of its cell.

    A column is a name, JSON path or 1-based number; the value of a flag such as --text_column for
    the purpose "text", or None. `has_header="auto"`: if a column has a name.
    """
    stream = _standard_input() if path == STDIN else None
    used = {purpose: column for purpose, column in columns.items() if column}
    num_used = num_numbers(used.values())
    header = not num_used if has_header == "auto" else has_header == "yes"
    rows = read_table(display_name(path), stream=stream, num_used=num_used)
    for place, cells in read_cells(path, rows, used, header):
        yield place, {purpose: to_text(cell, purpose, place) for purpose, cell in cells.items()}


def lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, or of standard input for `-`."""
    if path != STDIN:
        return files.read_lines(path)
    return text_lines.read(display_name(path), _standard_input())


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:  # Closed by the parent process.
        raise UserError("Standard input is closed: pass a file name")
    return sys.stdin.buffer


def check_prefix(texts: Iterable[str], prefix: str) -> Iterator[str]:
    """Yields a sentence if texts already begin with the prefix, or would have no space after it."""
    if prefix.isascii() and prefix[-1:].isalnum():  # Chinese needs no space
        yield f"there is no space between the prefix {prefix!r} and the text"
    found = [text.startswith(prefix) for text in texts] if prefix.strip() else []
    if 2 * sum(found) > len(found):
        problem = f"have the prefix {prefix!r} already, and it is added once more"
        yield counted(sum(found), "text", problem, of=len(found))


def require_room(flag: str, prefix: Sequence[str], length: int) -> None:
    """Raises a UserError if rows of `length` tokens have none for a text after the prefix."""
    if len(prefix) + 3 > length:  # [CLS], a token of the text and [SEP]
        problem = f"takes {len(prefix)} of {length} tokens: there is no room for a text"
        raise UserError(f"--{flag} {problem}", fix="Shorten it, or raise the maximum length")


def check_lines(path: str, lines: Sequence[str], advice: str = "") -> Iterator[str]:
    """Yields a sentence for each problem in the first lines of a file of texts.

    It is named like a table; or most lines are blank, JSON, columns, HTML or tags of WikiExtractor.
    """
    advice = f". {advice}" if advice else ""
    if _TABLE.search(path):
        yield f"each line is read as one text{advice}"
        return
    if lines and not any(map(str.strip, lines)):
        yield f"the first {counted(len(lines), 'line', 'are blank')}"
    yield from (problem + advice for problem in lint.values("line", lines))


def display_name(path: str) -> str:
    """Returns a file's name for messages; for `-` it is `<stdin>`."""
    return "<stdin>" if path == STDIN else path
