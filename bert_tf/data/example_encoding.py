"""Serializes batches of `tf.train.Example`s with NumPy.

Creating a protocol buffer object per record would dominate the time to write a dataset, so NumPy
encodes the numbers of all records at once (https://protobuf.dev/programming-guides/encoding/). The
bytes equal those of `tf.train.Example.SerializeToString(deterministic=True)`.
"""

import itertools
from collections.abc import Mapping

import numpy as np

# Tags of the length-delimited fields 1 to 3: field number << 3 | wire type 2.
_TAG_1, _TAG_2, _TAG_3 = b"\x0a", b"\x12", b"\x1a"


def encode_examples(batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serializes n records; `batch` maps each feature's name to integers or float32 [n, ...]."""
    names = sorted(batch, key=str.encode)
    entries_by_feature = [_encode_map_entries(name.encode(), batch[name]) for name in names]
    feature_maps = map(b"".join, zip(*entries_by_feature, strict=True))
    return [_field(_TAG_1, feature_map) for feature_map in feature_maps]


def _encode_map_entries(key: bytes, values: np.ndarray) -> list[bytes]:
    """Encodes one feature of every record, as an entry of the record's map of features."""
    rows = values.reshape(len(values), int(np.prod(values.shape[1:])))
    if values.dtype == np.float32:
        tag, data, size = _TAG_2, rows.astype("<f4").tobytes(), 4 * rows.shape[1]
        ends = range(size, size * len(rows) + 1, size)
    elif not (rows >> 7).any():  # All are 0 to 127: a varint is then one byte.
        tag, data, size = _TAG_3, rows.astype(np.uint8).tobytes(), rows.shape[1]
        ends = range(size, size * len(rows) + 1, size)
    else:
        tag, (data, ends) = _TAG_3, _varints(rows)
    bounds = list(itertools.pairwise([0, *ends]))
    headers = {size: _header(key, tag, size) for size in {end - start for start, end in bounds}}
    return [headers[end - start] + data[start:end] for start, end in bounds]


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _header(key: bytes, tag: bytes, length: int) -> bytes:
    """Encodes what precedes the `length` bytes of numbers: the headers of the nested messages."""
    header = _TAG_1 + _varint(length)  # packed list of numbers
    header = tag + _varint(len(header) + length) + header  # Feature
    header = _TAG_2 + _varint(len(header) + length) + header  # the map entry's value
    header = _field(_TAG_1, key) + header  # the map entry's key
    return _TAG_1 + _varint(len(header) + length) + header  # map entry


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers [n, length] as varints; returns the bytes and where each row ends."""
    numbers = values.astype(np.int64).reshape(-1).astype(np.uint64)
    limits = np.array([1 << shift for shift in range(7, 64, 7)], np.uint64)
    ends = np.cumsum(1 + np.searchsorted(limits, numbers, side="right"))
    positions = np.concatenate([[0], ends[:-1]])
    encoded = np.empty(ends[-1], np.uint8)
    seven = np.uint64(7)
    while len(numbers):
        continues = numbers > 127
        encoded[positions] = (numbers & np.uint64(127)) | (continues.astype(np.uint64) << seven)
        numbers, positions = numbers[continues] >> seven, positions[continues] + 1
    return encoded.tobytes(), ends[values.shape[1] - 1 :: values.shape[1]].tolist()
