"""Divides a corpus into shards based on file sizes alone, and reads the shards.

Random next sentences are drawn from the same shard. A unit is what a worker processes at a time: a
single shard (a byte range of a large file, or several small files) or a compressed file, which
consists of one or more shards. A document belongs to the byte range that contains the start of the
blank line before the document, so the corpus can be divided without reading it.
"""

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import UserError

# Maximum size of a document, in shards; larger ones suggest a file without blank lines.
_MAX_SHARDS_PER_DOCUMENT = 8

# Path, offset of the first byte, and offset after the last byte; None for a compressed file.
Range = tuple[str, int, int | None]


@dataclass(frozen=True)
class Unit:
    """A unit of work for one worker."""

    index: int
    ranges: tuple[Range, ...]
    size: int  # bytes on disk


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files, in order, into units, so that shards have about `shard_bytes` each."""
    groups: list[list[Range]] = []
    room = -1  # bytes that small files may add to the last group; -1: no file can be added
    for path in paths:
        size = files.size(path)
        with files.open_binary(path) as file:
            is_gzip = files.is_gzip(path, file)
        if is_gzip:
            groups.append([(path, 0, None)])
            room = -1
        elif size > shard_bytes:
            starts = range(0, size, shard_bytes)
            for start in starts:
                groups.append([(path, start, min(start + shard_bytes, size))])
            room = -1
        else:
            if size > room:
                groups.append([])
                room = shard_bytes
            groups[-1].append((path, 0, size))
            room -= size
    return [Unit(index, tuple(ranges), _sum_sizes(ranges)) for index, ranges in enumerate(groups)]


def _sum_sizes(ranges: Sequence[Range]) -> int:
    return sum((files.size(p) if stop is None else stop) - start for p, start, stop in ranges)


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Yields the shards of a unit: lists of documents, which are lists of non-blank lines.

    Unlike in the original BERT code, the end of a file also ends a document.
    """
    documents = _read_with_shard_index(unit, shard_bytes)
    for _, shard in itertools.groupby(documents, key=operator.itemgetter(0)):
        yield [document for _, document in shard]


def _read_with_shard_index(unit: Unit, shard_bytes: int) -> Iterator[tuple[int, list[str]]]:
    for path, start, stop in unit.ranges:
        with files.open_decompressed(path, regular_only=True) as file:
            for blank_start, document in _read_documents(path, file, start, stop, shard_bytes):
                # Only a compressed file, which has no `stop`, has more than one shard.
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
            if size > _MAX_SHARDS_PER_DOCUMENT * shard_bytes:
                megabytes = f"{size / 1e6:.3g} MB"
                problem = f"{path}: no blank line in the {megabytes} after byte {blank_start}"
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
            pass  # Reading all lines raises an error that names the line.
        raise
