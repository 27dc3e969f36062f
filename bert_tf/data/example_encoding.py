"""`tf.train.Example`s of a whole batch at once, written byte by byte.

A protocol buffer object per record, filled value by value, takes most of the time of writing a
data set. The format is small (https://protobuf.dev/programming-guides/encoding/), so here NumPy
writes the numbers of all records together. The bytes are those of
`tf.train.Example.SerializeToString(deterministic=True)`.
"""

from collections.abc import Mapping

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
    columns = [_Column(name, batch[name]) for name in sorted(batch, key=str.encode)]
    heads: dict[int, bytes] = {}
    records = []
    for row in range(len(next(iter(batch.values())))):
        parts = [part for column in columns for part in column.parts(row)]
        length = sum(map(len, parts))
        if length not in heads:
            heads[length] = _FIELD_1 + _varint(length)
        records.append(b"".join([heads[length], *parts]))
    return records


class _Column:
    """One feature of all records."""

    def __init__(self, name: str, values: np.ndarray) -> None:
        self.key = name.encode()
        rows = values.reshape(len(values), int(np.prod(values.shape[1:])))
        if values.dtype == np.float32:
            self.kind = _FIELD_2
            payload = rows.astype("<f4").tobytes()
            ends = np.arange(1, len(rows) + 1) * rows.shape[1] * rows.itemsize
        else:
            self.kind = _FIELD_3
            payload, ends = _varints(rows)
        self.payload = memoryview(payload)
        self.ends = [0, *ends.tolist()]
        self.heads: dict[int, bytes] = {}

    def parts(self, row: int) -> tuple[bytes, memoryview]:
        """What stands before the numbers of a record, and the numbers."""
        start, end = self.ends[row], self.ends[row + 1]
        length = end - start
        if length not in self.heads:
            self.heads[length] = self._head(length)
        return self.heads[length], self.payload[start:end]

    def _head(self, length: int) -> bytes:
        # Message in message in message; each is preceded by its field and its length.
        head = _FIELD_1 + _varint(length)  # the packed list of numbers
        head = self.kind + _varint(len(head) + length) + head  # Feature
        head = _FIELD_2 + _varint(len(head) + length) + head  # the value of the map entry
        head = _FIELD_1 + _varint(len(self.key)) + self.key + head  # its key
        return _FIELD_1 + _varint(len(head) + length) + head  # the entry


def _varint(number: int) -> bytes:
    return _varints(np.array([[number]]))[0]


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Integers in 7 bits per byte, the lowest first, as long as another one follows.

    Args:
        values: integers [n, length]; negative ones take 10 bytes.

    Returns:
        All bytes, and where each row ends [n].
    """
    rows, length = values.shape
    numbers = values.astype(np.int64).reshape(-1).view(np.uint64)
    if not (numbers >> np.uint64(7)).any():
        return numbers.astype(np.uint8).tobytes(), np.arange(1, rows + 1) * length
    sizes = np.ones(len(numbers), np.int64)
    for shift in range(7, 64, 7):
        longer = numbers >> np.uint64(shift) != 0
        if not longer.any():
            break
        sizes += longer
    ends = np.cumsum(sizes)
    places = ends - sizes
    encoded = np.empty(int(sizes.sum()), np.uint8)
    while len(numbers):
        more = numbers > 127
        encoded[places] = (numbers & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))
        numbers, places = numbers[more] >> np.uint64(7), places[more] + 1
    return encoded.tobytes(), ends[length - 1 :: length]
