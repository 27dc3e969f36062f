"""TFRecord files: features are declared once, and the declaration writes and parses them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.errors import UserError

_COUNTED_TOGETHER = 4096


@dataclass(frozen=True)
class Feature:
    """One entry of a record.

    Attributes:
        name: its key.
        length: how many numbers; None or () for a single one.
        dtype: "int64" or "float32", as stored; integers are parsed to int32, as the original
            release does, because TPUs have no other.

    Raises:
        ValueError: the length is not positive, or there is no such dtype.
    """

    name: str
    length: int | tuple[()] | None = None
    dtype: Literal["int64", "float32"] = "int64"

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "float32"):
            raise ValueError(
                f"dtype must be 'int64' or 'float32'. Received: {self.dtype!r} for {self.name!r}"
            )
        if isinstance(self.length, int) and self.length < 1:
            raise ValueError(
                f"length must be positive, or None for a single number. "
                f"Received: {self.length} for {self.name!r}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one parsed value: () or (length,)."""
        return (self.length,) if isinstance(self.length, int) else ()

    @property
    def size(self) -> int:
        """How many numbers a record has for it."""
        return self.shape[0] if self.shape else 1


def sequence_features(max_seq_length: int) -> tuple[Feature, ...]:
    """The three inputs of the encoder, each int64[max_seq_length]."""
    return tuple(
        Feature(name, max_seq_length) for name in ("input_ids", "input_mask", "segment_ids")
    )


def write_records(path: str, features: Sequence[Feature], rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes a TFRecord file of `tf.train.Example`s.

    The file appears under its name only when it is complete. The same rows give the same bytes.

    Args:
        path: the file; an old one is replaced.
        features: the declaration.
        rows: one mapping per record: name of the feature -> number, list or array.

    Returns:
        The number of records.

    Raises:
        ValueError: a row lacks a feature or has one that is not declared, or a value has the
            wrong length or is not of the declared type (int64 takes integers and booleans that
            fit into the int32 of parsing, float32 also floats).
        UserError: the file cannot be written.
    """
    count = 0
    try:
        with files.replacing(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
            for row in rows:
                writer.write(_serialize(features, row, count))
                count += 1
    except tf.errors.OpError as error:
        raise UserError(f"Cannot write {path}: {error.message}") from error
    return count


def _serialize(features: Sequence[Feature], row: Mapping[str, Any], index: int) -> bytes:
    if len(row) != len(features) or any(feature.name not in row for feature in features):
        declared = {feature.name for feature in features}
        raise ValueError(
            f"A row must have exactly the declared features. Row {index} lacks "
            f"{sorted(declared - set(row))} and has beyond them {sorted(set(row) - declared)}"
        )
    example = tf.train.Example()
    for feature in features:
        values = _checked(feature, row[feature.name], index)
        entry = example.features.feature[feature.name]
        kind = entry.int64_list if feature.dtype == "int64" else entry.float_list
        kind.value.extend(values.tolist())
    # Map entries have no order of their own: without this the bytes differ from run to run.
    return example.SerializeToString(deterministic=True)


def _checked(feature: Feature, value: Any, index: int) -> np.ndarray:
    values = np.asarray(value)
    # A single number may come bare or as a list of one.
    if values.shape != feature.shape and (feature.shape or values.shape != (1,)):
        raise ValueError(
            f"Feature {feature.name!r} is declared with shape {feature.shape}. "
            f"Received: shape {values.shape} in row {index}"
        )
    if values.dtype.kind not in ("iub" if feature.dtype == "int64" else "iubf"):
        raise ValueError(
            f"Feature {feature.name!r} is declared as {feature.dtype}. "
            f"Received: {values.dtype} in row {index}"
        )
    if feature.dtype == "int64" and not np.array_equal(values, values.astype(np.int32)):
        raise ValueError(f"Feature {feature.name!r} does not fit into int32 in row {index}")
    return values.reshape(-1).astype(feature.dtype)


def parse(features: Sequence[Feature]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Gives the function that parses a batch of records.

    Args:
        features: the declaration; entries of a record beyond it are ignored.

    Returns:
        A function from serialized records, string [B], to a dict with a tensor of each feature:
        int32 or float32, [B] for a single number, else [B, length]. It raises
        `tf.errors.InvalidArgumentError` when a record is no `tf.train.Example`, lacks a feature
        or has another length or type of it.
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


@dataclass(frozen=True)
class Replicas:
    """The copies of a model that a process feeds: `count` of `total`, from number `first` on."""

    first: int = 0
    count: int = 1
    total: int = 1

    def bounds(self, batch_size: int) -> list[tuple[int, int]]:
        """First row, and the row after the last, of each replica's part of a batch.

        Parts differ by one row at most.
        """
        replicas = range(self.first, self.first + self.count)
        return [
            (batch_size * r // self.total, batch_size * (r + 1) // self.total) for r in replicas
        ]


def read_dataset(
    path_or_paths: str | Sequence[str],
    features: Sequence[Feature],
    batch_size: int,
    *,
    shuffle_seed: int | None = None,
    num_records: int | None = None,
    repeat: bool = False,
    drop_remainder: bool = False,
    pad_to: int | None = None,
    skip_batches: int = 0,
    replicas: Replicas | None = None,
    shard_files: bool = False,
) -> tf.data.Dataset:
    """Batches of parsed records: shuffled, repeated, batched, in this order.

    Batches of a repeated set cross the borders of its epochs, as in the original release. The
    original shuffles in a window of 100 records only, so a file sorted by label is seen almost
    in its order; here the whole set is shuffled anew for each epoch. The order is a function of
    (shuffle_seed, epoch) and of `tf.random.set_seed`, if that was called, and not of how
    often the dataset was iterated: `skip_batches` goes on where a run of so many batches ended.

    With `replicas`, an element is the part of a batch that one replica gets, and the parts of a
    batch follow each other. All processes read all records in the same order and parse only what
    is theirs, so the batches are those of one device. With `shard_files`, where there are at
    least as many files as processes and the set is repeated, each process reads only files of its
    own, and the batches are others.

    Args:
        path_or_paths: the file, or the files in the order to read them.
        features: the declaration they were written with.
        batch_size: records per batch, over all replicas.
        shuffle_seed: None for the order of the files.
        num_records: how many records there are, when the caller knows; counted otherwise. With
            a number that is too small the shuffle is not complete. Only used for shuffling:
            that many serialized records are held in memory.
        repeat: without end, or once.
        drop_remainder: leave out a last batch that is not full; gives static shapes.
        pad_to: fill up every batch to so many records, with copies of its last one; gives static
            shapes.
        skip_batches: leave out so many batches, before anything is parsed.
        replicas: whose parts of the batches to give; None for whole batches.
        shard_files: see above.

    Returns:
        A dataset of dicts as of `parse`.

    Raises:
        UserError: a file is missing, there is nothing to shuffle, or a batch cannot be split over
            processes with files of their own.
        ValueError: there are no paths.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str) else list(path_or_paths)
    _require_files(paths)
    processes = replicas.total // replicas.count if replicas else 1
    if shard_files and repeat and replicas and len(paths) >= processes > 1:
        if batch_size % processes:
            raise UserError(
                f"A batch of {batch_size} cannot be split over {processes} processes that read "
                "files of their own: choose a multiple"
            )
        paths = paths[replicas.first // replicas.count :: processes]
        batch_size, num_records = batch_size // processes, None
        replicas = Replicas(0, replicas.count, replicas.count)
    records = tf.data.TFRecordDataset(paths)
    if shuffle_seed is not None:
        buffer_size = num_records or sum(count_records(path) for path in paths)
        if not buffer_size:
            raise UserError(f"There are no records in {', '.join(paths)}")
        records = _shuffled(records, buffer_size, shuffle_seed, repeat)
    elif repeat:
        records = records.repeat()
    batches = records.batch(batch_size, drop_remainder=drop_remainder).skip(skip_batches)
    if pad_to:
        batches = batches.map(lambda serialized: _padded(serialized, pad_to))
    if replicas:
        full = drop_remainder or bool(pad_to)
        batches = _parts(batches, replicas.bounds(pad_to or batch_size), full)
    # One call parses a whole batch: measured twice as fast as record by record.
    return batches.map(parse(features), num_parallel_calls=tf.data.AUTOTUNE).prefetch(
        tf.data.AUTOTUNE
    )


def _padded(serialized: tf.Tensor, rows: int) -> tf.Tensor:
    missing = rows - tf.shape(serialized)[0]
    full = tf.concat([serialized, tf.repeat(serialized[-1:], missing)], axis=0)
    return tf.ensure_shape(full, [rows])


def _parts(
    batches: tf.data.Dataset, bounds: Sequence[tuple[int, int]], full: bool
) -> tf.data.Dataset:
    """A data set of the parts of batches of serialized records."""
    sizes = {stop - start for start, stop in bounds}
    size = sizes.pop() if full and len(sizes) == 1 else None
    starts, stops = (tf.constant(side) for side in zip(*bounds, strict=True))

    def part(serialized: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        rows = serialized[start:stop]
        # Parts of the same size have a shape that is known.
        return tf.ensure_shape(rows, [size]) if size else rows

    def split(serialized: tf.Tensor) -> tf.data.Dataset:
        limits = tf.data.Dataset.from_tensor_slices((starts, stops))
        return limits.map(lambda start, stop: part(serialized, start, stop))

    return batches.flat_map(split)


def _shuffled(
    records: tf.data.Dataset, buffer_size: int, seed: int, repeat: bool
) -> tf.data.Dataset:
    epochs = tf.data.Dataset.counter() if repeat else tf.data.Dataset.range(1)

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        address = tf.stack([tf.constant(seed, tf.int64), epoch])
        epoch_seed: Any = tf.random.stateless_uniform([], address, 0, 2**62, tf.int64)
        return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)

    return epochs.flat_map(one_epoch)


def count_records(path: str) -> int:
    """The number of records in a file; it is read through.

    Raises:
        UserError: there is no such file, or it is not a complete TFRecord file.
    """
    _require_files([path])
    batches = tf.data.TFRecordDataset(path).batch(_COUNTED_TOGETHER)
    try:
        count = batches.reduce(np.int64(0), lambda n, batch: n + tf.size(batch, out_type=tf.int64))
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} is not a complete TFRecord file. Write it again. ({error.message})"
        ) from error
    return int(count)


def _require_files(paths: Sequence[str]) -> None:
    if not paths:
        raise ValueError("There must be at least one file to read. Received: no paths")
    for path in paths:
        if not files.exists(path):
            raise UserError(f"No such file: {path} ({files.describe_absence(path)})")
