"""Divides a corpus into shards without reading it.

A unit is the work of one worker at a time: a part of a large file, or several small files. Parts
are byte ranges: a document belongs to the part in which the blank line before it begins. So the
division takes no reading and depends on nothing but the sizes of the files. A compressed file
cannot be read from the middle; it is one unit with several shards.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf import files, text_lines
from bert_tf.errors import UserError

# A document of more shards than this indicates a file without blank lines.
_MAX_SHARDS_OF_DOCUMENT = 8

# Path, first byte, and the byte after the last; None for a compressed file.
Range = tuple[str, int, int | None]


@dataclass(frozen=True)
class Unit:
    """The work of one worker at a time."""

    number: int
    ranges: tuple[Range, ...]
    size: int  # bytes on disk


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files into units with shards of about `shard_bytes`, in the order of the files."""
    groups: list[tuple[list[Range], int]] = []
    room = -1
    for path in paths:
        size = files.size(path)
        if path.endswith(".gz"):
            groups.append(([(path, 0, None)], size))
            room = -1
        elif size > shard_bytes:
            for start in range(0, size, shard_bytes):
                stop = min(start + shard_bytes, size)
                groups.append(([(path, start, stop)], stop - start))
            room = -1
        else:
            if size > room:
                groups.append(([], 0))
                room = shard_bytes
            ranges, size_of_group = groups[-1]
            groups[-1] = ([*ranges, (path, 0, size)], size_of_group + size)
            room -= size
    return [Unit(number, tuple(ranges), size) for number, (ranges, size) in enumerate(groups)]


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Yields the documents of each shard of a unit, as lists of lines that are not blank.

    Here the end of a file ends a document.
    """
    shard: list[list[str]] = []
    for path, start, stop in unit.ranges:
        if stop is None:
            yield from _read_compressed(path, shard_bytes)
        else:
            with files.open_binary(path) as file:
                documents = _documents(path, file, start, stop, shard_bytes)
                shard += [document for _, document in documents]
    if shard:
        yield shard


def _read_compressed(path: str, shard_bytes: int) -> Iterator[list[list[str]]]:
    shard: list[list[str]] = []
    number = 0
    with files.open_decompressed(path) as file:
        for begin, document in _documents(path, file, 0, None, shard_bytes):
            if begin // shard_bytes > number and shard:
                yield shard
                shard = []
            number = begin // shard_bytes
            shard.append(document)
    if shard:
        yield shard


def _documents(
    path: str, file: Any, start: int, stop: int | None, shard_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yields the documents of a byte range, each after the offset of the blank line before it."""
    begin, is_owned = start, start == 0
    if start:
        # The line with the byte before `start` belongs to the part before.
        file.seek(start - 1, os.SEEK_SET)
        file.readline()
    offset = file.tell()
    document: list[str] = []
    size = 0
    for raw in file:
        line = _decode(path, offset, raw)
        if not line:
            if is_owned and document:
                yield begin, document
            document, size = [], 0
            begin, is_owned = offset, True
            if stop is not None and offset >= stop:
                return
        elif not is_owned:
            if stop is not None and offset >= stop:  # No document begins in this part.
                return
        else:
            document.append(line)
            size += len(raw)
            if size > _MAX_SHARDS_OF_DOCUMENT * shard_bytes:
                raise UserError(
                    f"{path} has no blank line in {size / 1e6:.3g} MB from byte {begin} on: put a "
                    "blank line between documents, or pass a larger --shard_mb"
                )
        offset += len(raw)
    if is_owned and document:
        yield begin, document


def _decode(path: str, offset: int, raw: bytes) -> str:
    try:
        # As in the original, every CR is removed, even within a line.
        return raw.decode("utf-8").replace("\r", "").strip()
    except UnicodeDecodeError as error:
        number = _count_lines(path, offset) + 1
        raise UserError(text_lines.explain_encoding(path, number, raw, error)) from error


def _count_lines(path: str, stop: int) -> int:
    with files.open_decompressed(path) as file:
        count = 0
        while stop and (data := file.read(min(stop, 1 << 22))):
            count += data.count(b"\n")
            stop -= len(data)
        return count
