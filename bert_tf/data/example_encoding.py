"""Serializes `tf.train.Example`s, a batch at once.

A protocol buffer object per record takes most of the time of writing a dataset, so NumPy encodes
the numbers of all records together (https://protobuf.dev/programming-guides/encoding/). The bytes
are those of `tf.train.Example.SerializeToString(deterministic=True)`.
"""

import itertools
from collections.abc import Mapping

import numpy as np

# Field number and wire type of length-delimited fields: field << 3 | 2.
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"


def encode_examples(batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serializes n records, given integers or float32 [n, ...] for each feature, at least one."""
    names = sorted(batch, key=str.encode)
    entries = [_entries(name.encode(), batch[name]) for name in names]
    records = map(b"".join, zip(*entries, strict=True))
    return [_field(_FIELD_1, record) for record in records]


def _entries(key: bytes, values: np.ndarray) -> list[bytes]:
    """Encodes the map entry of a feature for each record."""
    rows = values.reshape(len(values), int(np.prod(values.shape[1:])))
    if values.dtype == np.float32:
        kind, data, size = _FIELD_2, rows.astype("<f4").tobytes(), 4 * rows.shape[1]
        ends = range(size, size * len(rows) + 1, size)
    elif not (rows >> 7).any():  # One byte each; some bits are left of negative numbers, too.
        kind, data, size = _FIELD_3, rows.astype(np.uint8).tobytes(), rows.shape[1]
        ends = range(size, size * len(rows) + 1, size)
    else:
        kind, (data, ends) = _FIELD_3, _varints(rows)
    bounds = list(itertools.pairwise([0, *ends]))
    heads = {size: _head(key, kind, size) for size in {end - start for start, end in bounds}}
    return [heads[end - start] + data[start:end] for start, end in bounds]


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _head(key: bytes, kind: bytes, length: int) -> bytes:
    """Encodes what precedes the numbers of an entry: nested messages, each with its length."""
    head = _FIELD_1 + _varint(length)  # packed list of numbers
    head = kind + _varint(len(head) + length) + head  # Feature
    head = _FIELD_2 + _varint(len(head) + length) + head  # value of the map entry
    head = _field(_FIELD_1, key) + head  # its key
    return _FIELD_1 + _varint(len(head) + length) + head  # the entry


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers [n, length] as varints; returns the bytes and the end of each row."""
    numbers = values.astype(np.int64).reshape(-1).astype(np.uint64)
    limits = np.array([1 << shift for shift in range(7, 64, 7)], np.uint64)
    ends = np.cumsum(1 + np.searchsorted(limits, numbers, side="right"))
    places = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    encoded = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    seven = np.uint64(7)
    while len(numbers):
        more = numbers > 127
        encoded[places] = (numbers & np.uint64(127)) | (more.astype(np.uint64) << seven)
        numbers, places = numbers[more] >> seven, places[more] + 1
    return encoded.tobytes(), ends[values.shape[1] - 1 :: values.shape[1]].tolist()
