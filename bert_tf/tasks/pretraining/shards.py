"""Divides a corpus into shards based on file sizes alone, and reads the shards.

A unit is what a worker processes at a time: a byte range of a large file, several small files, or
a compressed file, which may contain several shards. A document belongs to the range that contains
the start of the blank line before it, so the corpus can be divided without reading it.
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
    """A unit of work for one worker."""

    number: int
    ranges: tuple[Range, ...]
    size: int  # bytes on disk


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files, in order, into units with shards of about `shard_bytes`."""
    groups: list[list[Range]] = []
    room = -1  # bytes left for small files in the last group; -1: none can be added
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
    return [Unit(number, tuple(ranges), _sum_sizes(ranges)) for number, ranges in enumerate(groups)]


def _sum_sizes(ranges: Sequence[Range]) -> int:
    return sum((files.size(p) if stop is None else stop) - start for p, start, stop in ranges)


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Yields the documents of each shard of a unit, as lists of non-blank lines.

    Unlike in the original, the end of a file also ends a document.
    """
    documents = _read_numbered_documents(unit, shard_bytes)
    for _, shard in itertools.groupby(documents, key=operator.itemgetter(0)):
        yield [document for _, document in shard]


def _read_numbered_documents(unit: Unit, shard_bytes: int) -> Iterator[tuple[int, list[str]]]:
    for path, start, stop in unit.ranges:
        with files.open_decompressed(path, regular_only=True) as file:
            for blank_start, document in _read_documents(path, file, start, stop, shard_bytes):
                yield 0 if stop else blank_start // shard_bytes, document


def _read_documents(
    path: str, file: Any, start: int, stop: int | None, shard_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yields each document of a byte range, with the offset of the blank line before it."""
    blank_start, in_range = start, start == 0
    if start:
        # The line that contains the byte before `start` belongs to the previous range.
        file.seek(start - 1, os.SEEK_SET)
        file.readline()
    offset, size = file.tell(), 0
    document: list[str] = []
    for raw_line in file:
        line = _decode(path, raw_line)
        if line and in_range:
            document.append(line)
            size += len(raw_line)
            if size > _MAX_SHARDS_OF_DOCUMENT * shard_bytes:
                problem = f"{path}: no blank line in {size / 1e6:.3g} MB from byte {blank_start}"
                advice = "put a blank line between documents, or pass a larger --shard_mb"
                raise UserError(f"{problem}: {advice}")
        else:
            if document:
                yield blank_start, document
            if not line:
                document, size, blank_start, in_range = [], 0, offset, True
            if stop is not None and offset >= stop:
                return
        offset += len(raw_line)
    if document:
        yield blank_start, document


def _decode(path: str, raw: bytes) -> str:
    try:
        # As in the original, every CR is removed, even within a line.
        return raw.decode("utf-8").replace("\r", "").strip()
    except UnicodeDecodeError:
        for _ in files.read_lines(path):
            pass  # Raises an error that names the line.
        raise
