"""Divides a corpus into shards without reading it.

A unit is the work of one worker at a time: a byte range of a large file, several small files, or a
compressed file, which has several shards. A document belongs to the range in which the blank line
before it begins, so the division depends only on file sizes.
"""

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

# A document larger than this many shards suggests a file without blank lines.
_MAX_SHARDS_OF_DOCUMENT = 8

# Path, first byte, and end byte (exclusive; None for a compressed file).
Range = tuple[str, int, int | None]


@dataclass(frozen=True)
class Unit:
    """The work of one worker at a time."""

    number: int
    ranges: tuple[Range, ...]
    size: int  # bytes on disk


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files into units with shards of about `shard_bytes`, in the order of the files."""
    groups: list[list[Range]] = []
    room = -1  # for more small files in the last group
    for path in paths:
        size = files.size(path)
        if path.endswith(".gz"):
            groups.append([(path, 0, None)])
            room = -1
        elif size > shard_bytes:
            starts = range(0, size, shard_bytes)
            groups += [[(path, start, min(start + shard_bytes, size))] for start in starts]
            room = -1
        else:
            if size > room:
                groups.append([])
                room = shard_bytes
            groups[-1].append((path, 0, size))
            room -= size
    return [Unit(number, tuple(ranges), _size(ranges)) for number, ranges in enumerate(groups)]


def _size(ranges: Sequence[Range]) -> int:
    return sum((files.size(p) if stop is None else stop) - start for p, start, stop in ranges)


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Yields the documents of each shard of a unit, as lists of lines that are not blank.

    Unlike in the original, the end of a file also ends a document.
    """
    documents = _numbered_documents(unit, shard_bytes)
    for _, shard in itertools.groupby(documents, key=operator.itemgetter(0)):
        yield [document for _, document in shard]


def _numbered_documents(unit: Unit, shard_bytes: int) -> Iterator[tuple[int, list[str]]]:
    for path, start, stop in unit.ranges:
        with files.open_decompressed(path, regular=True) as file:
            for begin, document in _documents(path, file, start, stop, shard_bytes):
                yield 0 if stop else begin // shard_bytes, document


def _documents(
    path: str, file: Any, start: int, stop: int | None, shard_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yields the documents of a byte range, each after the offset of the blank line before it."""
    begin, is_owned = start, start == 0
    if start:
        # The line that contains the byte before `start` belongs to the previous range.
        file.seek(start - 1, os.SEEK_SET)
        file.readline()
    offset, size = file.tell(), 0
    document: list[str] = []
    for raw in file:
        line = _decode(path, raw)
        if line and is_owned:
            document.append(line)
            size += len(raw)
            if size > _MAX_SHARDS_OF_DOCUMENT * shard_bytes:
                problem = f"has no blank line in {size / 1e6:.3g} MB from byte {begin} on"
                raise UserError(f"{path} {problem}: put some in, or pass a larger --shard_mb")
        else:
            if document:
                yield begin, document
            if not line:
                document, size, begin, is_owned = [], 0, offset, True
            if stop is not None and offset >= stop:
                return
        offset += len(raw)
    if document:
        yield begin, document


def _decode(path: str, raw: bytes) -> str:
    try:
        # As in the original, every CR is removed, even within a line.
        return raw.decode("utf-8").replace("\r", "").strip()
    except UnicodeDecodeError:
        for _ in files.read_lines(path):
            pass  # Raises an error that names the line.
        raise
