"""`tf.train.Example`s of a whole batch at once, written byte by byte.

A protocol buffer object per record, filled value by value, takes most of the time of writing a
data set. The format is small (https://protobuf.dev/programming-guides/encoding/), so here NumPy
writes the numbers of all records together. The bytes are those of
`tf.train.Example.SerializeToString(deterministic=True)`.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

# Field number and wire type of what has a length: field << 3 | 2.
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"


def encode_examples(batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serializes records that have the same features.

    Args:
        batch: name of the feature -> integers or float32 [n] or [n, length], one row for each
            record; there is at least one feature.

    Returns:
        n serialized records; the features stand in the order of their names.
    """
    names = sorted(batch, key=str.encode)
    entries = [_entries(name.encode(), batch[name]) for name in names]
    # Neighbours whose entries are all of one size are put together once and for all.
    parts: list[list[bytes]] = []
    for is_array, group in itertools.groupby(entries, lambda entry: isinstance(entry, np.ndarray)):
        if is_array:
            together = np.concatenate(list(group), axis=1)
            width, data = together.shape[1], together.tobytes()
            parts.append([data[at : at + width] for at in range(0, len(data), width)])
        else:
            parts += group
    heads: dict[int, bytes] = {}
    records = []
    for row in zip(*parts, strict=True):
        length = sum(map(len, row))
        if length not in heads:
            heads[length] = _FIELD_1 + _varint(length)
        records.append(b"".join((heads[length], *row)))
    return records


def _entries(key: bytes, values: np.ndarray) -> Any:
    """A feature of all records: uint8 [n, size] where they have one size, else bytes of each."""
    rows = values.reshape(len(values), int(np.prod(values.shape[1:])))
    if values.dtype == np.float32:
        numbers = np.ascontiguousarray(rows.astype("<f4")).view(np.uint8)
        return _with_head(_head(key, _FIELD_2, numbers.shape[1]), numbers)
    if not (rows >> 7).any():  # Also of negative numbers there is something left.
        return _with_head(_head(key, _FIELD_3, rows.shape[1]), rows.astype(np.uint8))
    payload, ends = _varints(rows)
    heads: dict[int, bytes] = {}
    entries = []
    for start, end in itertools.pairwise([0, *ends.tolist()]):
        if end - start not in heads:
            heads[end - start] = _head(key, _FIELD_3, end - start)
        entries.append(heads[end - start] + payload[start:end])
    return entries


def _with_head(head: bytes, numbers: np.ndarray) -> np.ndarray:
    heads = np.broadcast_to(np.frombuffer(head, np.uint8), (len(numbers), len(head)))
    return np.concatenate([heads, numbers], axis=1)


def _head(key: bytes, kind: bytes, length: int) -> bytes:
    """What stands before the numbers of an entry: messages in messages, each with its length."""
    head = _FIELD_1 + _varint(length)  # the packed list of numbers
    head = kind + _varint(len(head) + length) + head  # Feature
    head = _FIELD_2 + _varint(len(head) + length) + head  # the value of the map entry
    head = _FIELD_1 + _varint(len(key)) + key + head  # its key
    return _FIELD_1 + _varint(len(head) + length) + head  # the entry


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Integers in 7 bits per byte, the lowest first, as long as another one follows.

    Args:
        values: integers [n, length]; negative ones take 10 bytes.

    Returns:
        All bytes, and where each row ends [n].
    """
    length = values.shape[1]
    small = values.min(initial=0) >= 0 and values.max(initial=0) < 1 << 32
    kind = np.uint32 if small else np.uint64
    numbers = values.astype(np.int64).reshape(-1).astype(kind)
    sizes = np.ones(len(numbers), np.int64)
    for shift in range(7, 64, 7):
        longer = numbers >= kind(1 << shift) if shift < 8 * numbers.itemsize else None
        if longer is None or not longer.any():
            break
        sizes += longer
    ends = np.cumsum(sizes)
    places = ends - sizes
    encoded = np.empty(int(sizes.sum()), np.uint8)
    while len(numbers):
        more = numbers > 127
        encoded[places] = (numbers & kind(127)) | (more.astype(kind) << kind(7))
        numbers, places = numbers[more] >> kind(7), places[more] + 1
    return encoded.tobytes(), ends[length - 1 :: length]
