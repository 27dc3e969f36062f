"""Batches of records for training: order, replicas, lengths (tf.data).

B batch, S max_seq_length. Records are parsed last, once it is known who needs them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.backend import tf
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import Feature, count_records, parse, require_files
from bert_tf.errors import UserError

# Lengths of batches are multiples of this, for GPUs and for fewer shapes.
LENGTH_MULTIPLE = 8
# Number of batches to regroup by length; more would make the order less random.
_GROUPED_BATCHES = 50
# Files that a shuffled dataset reads in turn.
_FILES_AT_ONCE = 16


@dataclass(frozen=True)
class Replicas:
    """The replicas that a process feeds: `count` of `total`, starting with number `first`."""

    first: int = 0
    count: int = 1
    total: int = 1

    def bounds(self, batch_size: int) -> list[tuple[int, int]]:
        """Returns start and end of each replica's part of a batch, equal up to one row."""
        ends = [batch_size * replica // self.total for replica in range(self.total + 1)]
        return list(itertools.pairwise(ends[self.first : self.first + self.count + 1]))


# AutoGraph takes half a second, and nothing here branches on tensors.
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
    shard_files: bool = False,
    cut_padding: bool = False,
    group_by_length: bool = False,
) -> tf.data.Dataset:
    """Returns batches of parsed records: shuffled, repeated, batched, in this order.

    Batches of a repeated dataset cross the borders of epochs, as in the original, but every epoch
    shuffles all records instead of a window of 100. The order depends on (shuffle_seed, epoch), and
    on `tf.random.set_seed` if called, so that `skip_batches` resumes a run.

    With `replicas`, an element is the part of a batch for one replica; the parts of a batch follow
    each other. All processes read all records and parse their own, so the batches equal those of
    one device. With `shard_files`, if the dataset is repeated and has at least as many files as
    there are processes, each process reads its own files, and the batches differ.

    Args:
        path_or_paths: the file, or the files in reading order.
        features: the declaration that the files were written with.
        batch_size: records per batch, over all replicas.
        shuffle_seed: None for the order of the files.
        num_records: size of the shuffle buffer; by default all records, which are counted first.
        repeat: whether the dataset never ends.
        drop_remainder: drop a last batch that is not full; gives static shapes.
        skip_batches: number of batches to skip before anything is parsed.
        replicas: the replicas that this process feeds; None for whole batches.
        shard_files: see above.
        cut_padding: cut features that are `per_token` after the longest text of an element, at a
            multiple of 8.
        group_by_length: form batches of texts of similar length, from the rows of 50 batches, and
            return them in random order.

    Returns:
        A dataset of dicts as `records.parse` returns them.

    Raises:
        UserError: a file is missing, there is nothing to shuffle, or a batch cannot be split over
            processes that read their own files.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str) else list(path_or_paths)
    require_files(paths)
    processes = replicas.total // replicas.count if replicas else 1
    if shard_files and repeat and replicas and len(paths) >= processes > 1:
        if batch_size % processes:
            raise UserError(f"A batch of {batch_size} cannot be split over {processes} processes")
        paths = paths[replicas.first // replicas.count :: processes]
        batch_size //= processes
        replicas = Replicas(0, replicas.count, replicas.count)
    if shuffle_seed is not None:
        buffer_size = num_records or sum(count_records(path) for path in paths)
        if not buffer_size:
            raise UserError(f"There are no records in {', '.join(paths)}")
        records = _shuffled(paths, buffer_size, shuffle_seed, repeat)
    else:
        records = tf.data.TFRecordDataset(paths).repeat(None if repeat else 1)
    if group_by_length:
        (mask,) = (feature for feature in features if feature.name == "input_mask")
        seed = shuffle_seed or 0
        batches = _grouped(records, mask, batch_size, drop_remainder, seed, skip_batches)
    else:
        batches = records.batch(batch_size, drop_remainder=drop_remainder).skip(skip_batches)
    if replicas:
        batches = _parts(batches, replicas.bounds(batch_size), drop_remainder)
    parse_batch = parse(features)

    def finish(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse_batch(serialized)
        return _cut_padding(batch, features) if cut_padding else batch

    options = tf.data.Options()
    # Its thread may miss its cancellation; dropping the iterator then takes up to a minute.
    options.autotune.enabled = False
    parsed = batches.map(finish, num_parallel_calls=num_cores())
    return parsed.prefetch(2).with_options(options)


def _lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the position after the last token of each row: [B, .., S] -> [B]."""
    positions = tf.range(1, tf.shape(input_mask)[-1] + 1)
    rows = tf.reshape(tf.where(input_mask != 0, positions, 0), [tf.shape(input_mask)[0], -1])
    return tf.reduce_max(rows, axis=1)


def _cut_padding(batch: dict[str, tf.Tensor], features: Sequence[Feature]) -> dict[str, tf.Tensor]:
    longest = tf.reduce_max(_lengths(batch["input_mask"]))
    multiples = tf.maximum(1, (longest + LENGTH_MULTIPLE - 1) // LENGTH_MULTIPLE)
    per_token = {feature.name for feature in features if feature.per_token}
    return {
        name: value[..., : multiples * LENGTH_MULTIPLE] if name in per_token else value
        for name, value in batch.items()
    }


def _grouped(
    records: tf.data.Dataset,
    mask: Feature,
    batch_size: int,
    drop_remainder: bool,
    shuffle_seed: int,
    skip_batches: int,
) -> tf.data.Dataset:
    """Forms batches of serialized records of similar length, window by window."""
    parse_mask = parse([mask])

    def form(window: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
        lengths = _lengths(parse_mask(serialized)[mask.name])
        ordered = tf.argsort(lengths, direction="DESCENDING", stable=True)
        rows = tf.size(ordered)
        count = rows // batch_size if drop_remainder else (rows + batch_size - 1) // batch_size
        address = tf.stack([tf.constant(shuffle_seed, tf.int64), window])
        order = tf.argsort(tf.random.stateless_uniform([count], address))

        def one(index: tf.Tensor) -> tf.Tensor:
            chosen = ordered[index * batch_size : (index + 1) * batch_size]
            if drop_remainder:
                chosen = tf.ensure_shape(chosen, [batch_size])
            return tf.gather(serialized, chosen)

        return tf.data.Dataset.from_tensor_slices(order).map(one)

    windows: Any = records.batch(_GROUPED_BATCHES * batch_size).enumerate()
    formed = windows.skip(skip_batches // _GROUPED_BATCHES).flat_map(form)
    return formed.skip(skip_batches % _GROUPED_BATCHES)


def _parts(
    batches: tf.data.Dataset, bounds: Sequence[tuple[int, int]], full: bool
) -> tf.data.Dataset:
    """Splits batches of serialized records into the parts of replicas."""
    sizes = {stop - start for start, stop in bounds}
    size = sizes.pop() if full and len(sizes) == 1 else None
    starts, stops = (tf.constant(side) for side in zip(*bounds, strict=True))

    def split(batch: tf.Tensor) -> tf.data.Dataset:
        def part(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
            rows = batch[start:stop]
            # Parts of equal size have a static shape.
            return tf.ensure_shape(rows, [size]) if size else rows

        return tf.data.Dataset.from_tensor_slices((starts, stops)).map(part)

    return batches.flat_map(split)


def _shuffled(paths: Sequence[str], buffer_size: int, seed: int, repeat: bool) -> tf.data.Dataset:
    epochs = tf.data.Dataset.counter() if repeat else tf.data.Dataset.range(1)

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        address = tf.stack([tf.constant(seed, tf.int64), epoch])
        epoch_seed: Any = tf.random.stateless_uniform([], address, 0, 2**62, tf.int64)
        names = tf.data.Dataset.from_tensor_slices(list(paths))
        names = names.shuffle(len(paths), seed=epoch_seed, reshuffle_each_iteration=False)
        # Reading several files in turn mixes what does not fit into the buffer.
        records = names.interleave(
            tf.data.TFRecordDataset, cycle_length=min(len(paths), _FILES_AT_ONCE)
        )
        return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)

    return epochs.flat_map(one_epoch)
