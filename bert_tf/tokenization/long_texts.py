"""String methods for long texts, in linear time; in pieces, as each holds Python's lock."""

import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping

# Python sorts a run of marks by insertion: for so many, in a millisecond.
SHORT = 1 << 10
_PIECE_CHARS = 1 << 15

_ANY, _SPACE = re.compile(""), re.compile(r"\s")
# Characters that end a run of marks: no mark moves across them. Others do, but need not be listed.
_STARTER = re.compile(r"[\0-\u02ff\w]")


def translate(text: str, table: Mapping[int, str]) -> str:
    """Returns `text.translate(table)`."""
    return "".join(piece.translate(table) for piece in _pieces(text, _PIECE_CHARS, _ANY))


def split(text: str) -> list[str]:
    """Returns `text.split()`."""
    words: list[str] = []
    for piece in _pieces(text, _PIECE_CHARS, _SPACE):
        words += piece.split()
    return words


def decompose(text: str) -> str:
    """Returns the canonical decomposition of a text, `unicodedata.normalize("NFD", text)`."""
    pieces = _pieces(text, SHORT // 2, _STARTER)
    nfd = functools.partial(unicodedata.normalize, "NFD")
    return "".join(nfd(x) if len(x) <= SHORT else _sort_marks(x) for x in pieces)


def _sort_marks(text: str) -> str:
    """Decomposes a text; sorts each run of marks by their combining class, stably."""
    sorted_: list[str] = []
    run: defaultdict[int, list[str]] = defaultdict(list)  # a starter and its marks, by class
    for char in text + "\0":  # the last character only ends the last run
        for combining_class, part in _decompose_char(char):
            if not combining_class:
                sorted_.extend(mark for _, marks in sorted(run.items()) for mark in marks)
                run.clear()
            run[combining_class].append(part)
    return "".join(sorted_)


@functools.lru_cache(maxsize=4096)
def _decompose_char(char: str) -> list[tuple[int, str]]:
    return [(unicodedata.combining(part), part) for part in unicodedata.normalize("NFD", char)]


def _pieces(text: str, size: int, beginning: re.Pattern[str]) -> Iterator[str]:
    """Cuts a text about every `size` characters, where the pattern `beginning` matches next."""
    start = 0
    while start < len(text):
        match = beginning.search(text, start + size)
        end = match.start() if match else len(text)
        yield text[start:end]
        start = end
