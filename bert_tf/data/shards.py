"""A corpus in shards: which text belongs to which, without reading it first.

A unit is what one worker does at a time: a part of a large file, or several small files. A part is
found by its place in bytes: a document belongs to where the blank line before it begins. So nobody
has to read a corpus to divide it, and the division depends on nothing but the sizes of its files. A
compressed file cannot be entered in the middle; it is a unit of several shards, one after the
other.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf import files, text_lines
from bert_tf.errors import UserError

# A document of more than so many shards is taken for a file without blank lines.
_LARGEST_DOCUMENT = 8


@dataclass(frozen=True)
class Unit:
    """What a worker does at a time.

    Attributes:
        number: from 0.
        ranges: path, first byte, byte after the last; None for a compressed file.
        size: bytes on the disk.
    """

    number: int
    ranges: tuple[tuple[str, int, int | None], ...]
    size: int


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files into units, in their order.

    Args:
        paths: text files; those that end in `.gz` are compressed.
        shard_bytes: text of a shard, about.
    """
    groups: list[list[tuple[str, int, int | None]]] = []
    sizes: list[int] = []
    room = -1
    for path in paths:
        size = files.size(path)
        if path.endswith(".gz"):
            groups.append([(path, 0, None)])
            sizes.append(size)
            room = -1
        elif size > shard_bytes:
            starts = range(0, size, shard_bytes)
            for start in starts:
                groups.append([(path, start, min(start + shard_bytes, size))])
            sizes += [min(shard_bytes, size - start) for start in starts]
            room = -1
        else:
            if size > room:
                groups.append([])
                sizes.append(0)
                room = shard_bytes
            groups[-1].append((path, 0, size))
            sizes[-1] += size
            room -= size
    return [
        Unit(number, tuple(ranges), size)
        for number, (ranges, size) in enumerate(zip(groups, sizes, strict=True))
    ]


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Reads the shards of a unit, one after the other.

    Returns:
        For each shard its documents, as lists of lines that are not blank. A document ends with
        its file.

    Raises:
        UserError: a file cannot be read, is not UTF-8, or has no blank line for very long.
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
    """Documents whose blank line before begins in a part of a file, and where it begins."""
    begin, owned = start, start == 0
    if start:
        # The rest of the line that holds the byte before: the next one is the first of this part.
        file.seek(start - 1, os.SEEK_SET)
        file.readline()
    place = file.tell()
    document: list[str] = []
    size = 0
    for raw in file:
        line = _decoded(path, place, raw)
        if not line:
            if owned and document:
                yield begin, document
            document, size = [], 0
            begin, owned = place, True
            if stop is not None and place >= stop:
                return
        elif not owned:
            if stop is not None and place >= stop:  # All of this part belongs to another one.
                return
        else:
            document.append(line)
            size += len(raw)
            if size > _LARGEST_DOCUMENT * shard_bytes:
                raise UserError(
                    f"{path} has no blank line in {size / 1e6:.3g} MB from byte {begin} on: put a "
                    "blank line between documents, or pass a larger --shard_mb"
                )
        place += len(raw)
    if owned and document:
        yield begin, document


def _decoded(path: str, place: int, raw: bytes) -> str:
    try:
        # Every CR goes, also one inside a line, as when the original reads.
        return raw.decode("utf-8").replace("\r", "").strip()
    except UnicodeDecodeError as error:
        number = _lines_before(path, place) + 1
        raise UserError(text_lines.explain_encoding(path, number, raw, error)) from error


def _lines_before(path: str, place: int) -> int:
    with files.open_decompressed(path) as file:
        count = 0
        while place and (some := file.read(min(place, 1 << 22))):
            count += some.count(b"\n")
            place -= len(some)
        return count
