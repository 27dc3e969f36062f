"""tf.data input pipeline: shuffles, shards and batches records, and groups them by length.

B is the batch size, S max_seq_length. Records are parsed last, so that each process parses only the
records that it needs.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.backend import tf
from bert_tf.data.feature_specs import Feature
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import count_records, parse, require_files
from bert_tf.errors import UserError

# Batch lengths are multiples of this: faster on GPUs, and fewer distinct shapes.
LENGTH_MULTIPLE = 8
# Number of batches in a window that is grouped by length; more would make the order less random.
_GROUPED_BATCHES = 50
# Number of files that a shuffled dataset interleaves.
_CYCLE_LENGTH = 16


@dataclass(frozen=True)
class Replicas:
    """The replicas that a process feeds: `count` of `total`, starting with index `first`."""

    first: int = 0
    count: int = 1
    total: int = 1

    def bounds(self, batch_size: int) -> list[tuple[int, int]]:
        """Returns start and end of each replica's rows in a batch; sizes differ by at most one."""
        ends = [batch_size * replica // self.total for replica in range(self.total + 1)]
        return list(itertools.pairwise(ends[self.first : self.first + self.count + 1]))


# AutoGraph would take half a second; nothing here branches on tensors.
@tf.autograph.experimental.do_not_convert
def read_dataset(
    path_or_paths: str | Sequence[str],
    features: Sequence[Feature],
    batch_size: int,
    *,
    shuffle_seed: int | None = None,
    num_records: int | None = None,
    repeat: bool = False,
    drop_remainder: bool = False,
    skip_batches: int = 0,
    replicas: Replicas | None = None,
    trim_padding: bool = False,
    group_by_length: bool = False,
) -> tf.data.Dataset:
    """Returns batches of parsed records: shuffled, repeated and then batched.

    Batches of a repeated dataset cross epoch boundaries, as in the original, but every epoch
    shuffles all records instead of a window of 100. The order depends only on `shuffle_seed`, the
    epoch and `tf.random.set_seed`, if called, so that `skip_batches` can resume a run.

    With `replicas`, each element is one replica's share of a batch, in the order of the replicas.
    All processes read all records and parse their own, so batches equal those of a single device,
    unless the dataset is repeated and has at least as many files as there are processes: then each
    process reads a subset of the files.

    Args:
        path_or_paths: one file, or several in reading order.
        features: the features that the files were written with.
        batch_size: records per batch, over all replicas.
        shuffle_seed: None keeps the order of the files.
        num_records: size of the shuffle buffer; by default the records are counted first.
        repeat: repeat the records without end.
        drop_remainder: drop an incomplete last batch, for static shapes.
        skip_batches: number of batches to skip without parsing them.
        replicas: the replicas that this process feeds; None for undivided batches.
        trim_padding: trim `per_token` features to the longest text of the element, rounded up to a
            multiple of 8.
        group_by_length: form batches of texts of similar length, within windows of 50 batches, and
            return them in random order.

    Returns:
        A dataset of dicts, as returned by the function of `records.parse`.

    Raises:
        UserError: a file is missing, there are no records to shuffle, or, with sharded files,
            `batch_size` is not a multiple of the number of processes.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str) else list(path_or_paths)
    require_files(paths)
    processes = replicas.total // replicas.count if replicas else 1
    if repeat and replicas and len(paths) >= processes > 1:
        if batch_size % processes:
            raise UserError(f"Batch size {batch_size} is not a multiple of {processes} processes")
        paths = paths[replicas.first // replicas.count :: processes]
        batch_size //= processes
        replicas = Replicas(0, replicas.count, replicas.count)
    if shuffle_seed is not None:
        buffer_size = num_records or sum(count_records(path) for path in paths)
        if not buffer_size:
            raise UserError(f"No records in {', '.join(paths)}")
        records = _read_shuffled(paths, buffer_size, shuffle_seed, repeat)
    else:
        records = tf.data.TFRecordDataset(paths).repeat(None if repeat else 1)
    if group_by_length:
        (mask,) = (feature for feature in features if feature.name == "input_mask")
        seed = shuffle_seed or 0
        batches = _group_by_length(records, mask, batch_size, drop_remainder, seed, skip_batches)
    else:
        batches = records.batch(batch_size, drop_remainder=drop_remainder).skip(skip_batches)
    if replicas:
        batches = _split_by_replica(batches, replicas.bounds(batch_size), drop_remainder)
    parse_batch = parse(features)

    def parse_and_trim(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse_batch(serialized)
        return _trim_padding(batch, features) if trim_padding else batch

    options = tf.data.Options()
    # The autotune thread may miss its cancellation; deleting the iterator can then take a minute.
    options.autotune.enabled = False
    parsed = batches.map(parse_and_trim, num_parallel_calls=num_cores())
    return parsed.prefetch(2).with_options(options)


def _compute_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the unpadded length of each row (its longest text): [B, .., S] -> [B]."""
    positions = tf.range(1, tf.shape(input_mask)[-1] + 1)
    ends = tf.reshape(tf.where(input_mask != 0, positions, 0), [tf.shape(input_mask)[0], -1])
    return tf.reduce_max(ends, axis=1)


def _trim_padding(batch: dict[str, tf.Tensor], features: Sequence[Feature]) -> dict[str, tf.Tensor]:
    longest = tf.reduce_max(_compute_lengths(batch["input_mask"]))
    num_multiples = tf.maximum(1, (longest + LENGTH_MULTIPLE - 1) // LENGTH_MULTIPLE)
    per_token = {feature.name for feature in features if feature.per_token}
    return {
        name: value[..., : num_multiples * LENGTH_MULTIPLE] if name in per_token else value
        for name, value in batch.items()
    }


def _group_by_length(
    records: tf.data.Dataset,
    mask: Feature,
    batch_size: int,
    drop_remainder: bool,
    shuffle_seed: int,
    skip_batches: int,
) -> tf.data.Dataset:
    """Batches serialized records of similar length, window by window."""
    parse_mask = parse([mask])

    def batch_window(window: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
        lengths = _compute_lengths(parse_mask(serialized)[mask.name])
        by_length = tf.argsort(lengths, direction="DESCENDING", stable=True)
        size = tf.size(by_length)
        count = size // batch_size if drop_remainder else (size + batch_size - 1) // batch_size
        seed = tf.stack([tf.constant(shuffle_seed, tf.int64), window])
        order = tf.argsort(tf.random.stateless_uniform([count], seed))

        def gather_batch(index: tf.Tensor) -> tf.Tensor:
            rows = by_length[index * batch_size : (index + 1) * batch_size]
            if drop_remainder:
                rows = tf.ensure_shape(rows, [batch_size])
            return tf.gather(serialized, rows)

        return tf.data.Dataset.from_tensor_slices(order).map(gather_batch)

    windows: Any = records.batch(_GROUPED_BATCHES * batch_size).enumerate()
    grouped = windows.skip(skip_batches // _GROUPED_BATCHES).flat_map(batch_window)
    return grouped.skip(skip_batches % _GROUPED_BATCHES)


def _split_by_replica(
    batches: tf.data.Dataset, bounds: Sequence[tuple[int, int]], drop_remainder: bool
) -> tf.data.Dataset:
    """Splits batches of serialized records into one element per replica."""
    sizes = {stop - start for start, stop in bounds}
    size = sizes.pop() if drop_remainder and len(sizes) == 1 else None
    starts, stops = (tf.constant(side) for side in zip(*bounds, strict=True))

    def split(batch: tf.Tensor) -> tf.data.Dataset:
        def slice_rows(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
            rows = batch[start:stop]
            # With slices of equal size the shape is static.
            return tf.ensure_shape(rows, [size]) if size else rows

        return tf.data.Dataset.from_tensor_slices((starts, stops)).map(slice_rows)

    return batches.flat_map(split)


def _read_shuffled(
    paths: Sequence[str], buffer_size: int, seed: int, repeat: bool
) -> tf.data.Dataset:
    epochs = tf.data.Dataset.counter() if repeat else tf.data.Dataset.range(1)

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        seed_and_epoch = tf.stack([tf.constant(seed, tf.int64), epoch])
        epoch_seed: Any = tf.random.stateless_uniform([], seed_and_epoch, 0, 2**62, tf.int64)
        filenames = tf.data.Dataset.from_tensor_slices(list(paths))
        filenames = filenames.shuffle(len(paths), seed=epoch_seed, reshuffle_each_iteration=False)
        # Interleaving files mixes records even where the buffer cannot hold them all.
        records = filenames.interleave(
            tf.data.TFRecordDataset, cycle_length=min(len(paths), _CYCLE_LENGTH)
        )
        return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)

    return epochs.flat_map(read_epoch)
