"""Writes and reads TFRecord files, whose records are described by `Feature`s."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.backend import tf
from bert_tf.base.errors import UserError, reason
from bert_tf.data.features import Feature

_BLOCK_RECORDS = 1024
# Bytes of a record besides its content: the length and two checksums.
_FRAME_BYTES = 16
# Describes the record files in its folder, so that a later run can reuse them.
_MANIFEST = "records.json"


def write_records(
    path: str, features: Sequence[Feature], batches: Iterable[Mapping[str, np.ndarray]]
) -> int:
    """Writes a TFRecord file of `tf.train.Example`s atomically.

    The file depends only on the rows, not on how they are divided into batches.

    Args:
        path: the file; replaced if it exists.
        features: the features of each record.
        batches: each has an array [n, *shape] for each feature; n may differ between batches.

    Returns:
        The number of records.

    Raises:
        ValueError: a batch does not match `features`. An int64 feature accepts booleans and
            integers in the range of int32; a float32 feature also accepts floats.
        UserError: the file cannot be written.
    """
    count = 0
    with files.atomic_write(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for batch in batches:
            serialized = encode_examples(_validate(features, batch, count))
            for record in serialized:
                writer.write(record)
            count += len(serialized)
    return count


def _validate(
    features: Sequence[Feature], batch: Mapping[str, Any], first_row: int
) -> dict[str, np.ndarray]:
    """Checks a batch against the declared features; returns its values as int64 and float32."""
    where = f"in the batch starting at row {first_row}"
    if different := batch.keys() ^ {feature.name for feature in features}:
        raise ValueError(f"Missing or unexpected features {where}: {sorted(different)}")
    num_rows = len(np.atleast_1d(batch[features[0].name]))
    arrays = {}
    for feature in features:
        values, shape = np.asarray(batch[feature.name]), (num_rows, *feature.shape)
        is_int = feature.dtype == "int64"
        # A scalar feature may also have the shape [n, 1].
        fits = values.shape == shape or (not feature.shape and values.shape == (num_rows, 1))
        fits &= values.dtype.kind in ("iub" if is_int else "iubf")
        if not fits or (is_int and not np.array_equal(values, values.astype(np.int32))):
            expected = f"{'32-bit integers' if is_int else 'numbers'} of shape {shape}"
            problem = f"Feature {feature.name!r} must be {expected} {where}"
            raise ValueError(f"{problem}. Received: {values.dtype} of shape {values.shape}")
        arrays[feature.name] = values.astype(feature.dtype)
    return arrays


def read_stats(path: str, key: str) -> dict[str, Any] | None:
    """Returns statistics of a record file; None if it has a different key, or was modified."""
    entry = _read_manifest(path).get(os.path.basename(path))
    if not files.exists(path) or not isinstance(entry, dict):
        return None
    expected = (key, [*files.size_and_mtime(path)])
    return entry.get("about") if (entry.get("key"), entry.get("stamp")) == expected else None


def write_stats(path: str, key: str, stats: Mapping[str, Any]) -> None:
    """Stores the statistics and the key of a record file that was just written."""
    entry = {"key": key, "stamp": files.size_and_mtime(path), "about": stats}
    entries = {**_read_manifest(path), os.path.basename(path): entry}
    files.write_json(os.path.join(os.path.dirname(path), _MANIFEST), entries)


def _read_manifest(path: str) -> dict[str, Any]:
    with contextlib.suppress(UserError):  # missing or damaged
        return files.read_json(os.path.join(os.path.dirname(path), _MANIFEST))
    return {}


def encode_examples(batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serializes n `tf.train.Example`s; `batch` maps features to integers or float32 [n, ...].

    The bytes equal those of `SerializeToString(deterministic=True)`. TensorFlow encodes all records
    at once, because creating an object per record takes several times as long.
    """
    sizes = {name: int(np.prod(values.shape[1:])) for name, values in batch.items()}
    rows = {
        name: tf.constant(values.reshape(len(values), sizes[name]))
        for name, values in batch.items()
    }
    # One graph for any number of rows and any lengths.
    specs = {name: tf.TensorSpec([None, None], values.dtype) for name, values in rows.items()}
    return _encode_rows.get_concrete_function(specs)(rows).numpy().tolist()


# In a graph, TensorFlow encodes several features in parallel.
@tf.function(autograph=False)
def _encode_rows(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Serializes n rows of features [n, length]; returns strings [n]."""
    entries = []
    for name in sorted(batch, key=str.encode):
        values = batch[name]
        if values.dtype == tf.float32:
            feature = _encode("Feature", float_list=_encode("FloatList", value=values))
        else:
            numbers = _encode("Int64List", value=tf.cast(values, tf.int64))
            feature = _encode("Feature", int64_list=numbers)
        keys = tf.fill(tf.shape(feature), name)
        entries.append(_encode("Features.FeatureEntry", key=keys, value=feature))
    return _encode("Example", features=_encode("Features", feature=tf.stack(entries, axis=1)))


def _encode(message: str, **fields: tf.Tensor) -> tf.Tensor:
    """Serializes n messages with the same fields: one value [n] or a list of values [n, length]."""
    columns = [x[:, None] if x.shape.rank == 1 else x for x in fields.values()]
    lengths = tf.stack([tf.shape(column)[1] for column in columns])
    sizes = tf.tile(lengths[None], [tf.shape(columns[0])[0], 1])
    return tf.io.encode_proto(sizes, columns, list(fields), f"tensorflow.{message}")


def make_parse_fn(features: Sequence[Feature]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns a function that parses serialized records [B] to int32 or float32 [B, *shape].

    It ignores features that are not declared. It raises `tf.errors.InvalidArgumentError` if a
    record lacks a feature, or if a feature has a different length or type.
    """
    specification = {
        feature.name: tf.io.FixedLenFeature(feature.shape, tf.as_dtype(feature.dtype))
        for feature in features
    }

    def parse_batch(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed: Any = tf.io.parse_example(serialized, specification)
        return {
            name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor
            for name, tensor in parsed.items()
        }

    return parse_batch


def read_chunks(
    paths: str | Sequence[str], features: Sequence[Feature], size: int, num_records: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields `num_records` records of files, repeated if needed, in batches of `size`."""
    records = tf.data.TFRecordDataset(paths).repeat().take(num_records)
    yield from records.batch(size).map(make_parse_fn(features)).as_numpy_iterator()


def count_records(path: str) -> int:
    """Counts the records of a file by reading it; raises a UserError if it is truncated."""
    return sum(count for _, count in find_blocks(path))


def find_blocks(path: str) -> list[tuple[int, int]]:
    """Returns the offset in bytes, and the number of records, of each block of 1,024 records.

    Raises:
        UserError: the file is missing or truncated.
    """
    files.open_binary(path).close()  # Raises a clearer error for a missing file.

    def measure(block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        lengths = tf.cast(tf.strings.length(block), tf.int64)
        return tf.size(block), tf.reduce_sum(lengths + _FRAME_BYTES)

    measured: Any = tf.data.TFRecordDataset(path).batch(_BLOCK_RECORDS).map(measure)
    blocks, offset = [], 0
    try:
        for count, num_bytes in measured.as_numpy_iterator():
            blocks.append((offset, int(count)))
            offset += int(num_bytes)
    except tf.errors.DataLossError as error:
        raise UserError(f"{path} is not a complete TFRecord file: {reason(error)}") from error
    return blocks
