"""String methods for texts of any length: they take linear time, and let other threads run.

A method of `str` holds Python's lock until it returns, so these functions process a long text in
pieces.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping

_PIECE_CHARS = 1 << 13
# Python sorts each run of combining marks by insertion, which is fast enough for twice this number.
_DECOMPOSED_CHARS = 1 << 8

_ANY, _SPACE = re.compile(""), re.compile(r"\s")
# Characters that end a run of marks: no mark moves across them. Others do, but need not be listed.
_STARTER = re.compile(r"[\0-\u02ff\w]")


def translate(text: str, table: Mapping[int, str]) -> str:
    """Returns `text.translate(table)`."""
    if len(text) <= _PIECE_CHARS:
        return text.translate(table)
    return "".join(piece.translate(table) for piece in _pieces(text, _PIECE_CHARS, _ANY))


def split(text: str) -> list[str]:
    """Returns `text.split()`."""
    if len(text) <= _PIECE_CHARS:
        return text.split()
    return [word for piece in _pieces(text, _PIECE_CHARS, _SPACE) for word in piece.split()]


def decompose(text: str) -> str:
    """Returns the canonical decomposition of a text, `unicodedata.normalize("NFD", text)`."""
    short = 2 * _DECOMPOSED_CHARS
    if len(text) <= short:
        return unicodedata.normalize("NFD", text)
    pieces = _pieces(text, _DECOMPOSED_CHARS, _STARTER)
    return "".join(decompose(x) if len(x) <= short else _sort_marks(x) for x in pieces)


def _sort_marks(text: str) -> str:
    """Decomposes a text; sorts each run of marks by their combining class, stably."""
    sorted_: list[str] = []
    run: defaultdict[int, list[str]] = defaultdict(list)  # a starter and its marks, by class
    for char in text + "\0":  # the last character only ends the last run
        for part in unicodedata.normalize("NFD", char):
            combining_class = unicodedata.combining(part)
            if not combining_class:
                sorted_.extend(mark for _, marks in sorted(run.items()) for mark in marks)
                run.clear()
            run[combining_class].append(part)
    return "".join(sorted_)


def _pieces(text: str, size: int, beginning: re.Pattern[str]) -> Iterator[str]:
    """Cuts a text about every `size` characters, where the pattern `beginning` matches next."""
    start = 0
    while start < len(text):
        match = beginning.search(text, start + size)
        end = match.start() if match else len(text)
        yield text[start:end]
        start = end
