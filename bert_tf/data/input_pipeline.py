"""Batches of records for training: order, parts of replicas, lengths (tf.data).

B batch, S max_seq_length. Batches hold serialized records until their rows are decided; then one
call parses the part of a replica.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.backend import tf
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import Feature, count_records, parse, require_files
from bert_tf.errors import UserError

# Lengths of batches are multiples of this, which suits GPUs and gives fewer shapes.
LENGTH_MULTIPLE = 8
# Batches of similar length are formed from the rows of so many batches; more would make the order
# less random.
_GROUPED_BATCHES = 50
# Files that a shuffled data set reads in turn.
_FILES_AT_ONCE = 16


@dataclass(frozen=True)
class Replicas:
    """The replicas that a process feeds: `count` of `total`, from number `first` on."""

    first: int = 0
    count: int = 1
    total: int = 1

    def bounds(self, batch_size: int) -> list[tuple[int, int]]:
        """Start and end of each replica's part of a batch; parts differ by at most one row."""
        replicas = range(self.first, self.first + self.count)
        return [
            (batch_size * r // self.total, batch_size * (r + 1) // self.total) for r in replicas
        ]


# AutoGraph would spend half a second on functions that do not branch on tensors.
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

    Batches of a repeated data set cross the borders of its epochs, as in the original. The original
    shuffles in a window of only 100 records, so that a file sorted by label is seen almost in
    its order; here every epoch shuffles the whole set. The order is a function of
    (shuffle_seed, epoch) and of `tf.random.set_seed`, if that was called, not of how often the
    data set was iterated: `skip_batches` resumes a run after so many batches.

    With `replicas`, an element is the part of a batch for one replica, and the parts of a batch
    follow each other. All processes read all records in the same order and parse only their own,
    so the batches equal those of one device. With `shard_files`, if the set is repeated and has
    at least as many files as there are processes, each process reads only its own files, and the
    batches differ.

    Args:
        path_or_paths: the file, or the files in reading order.
        features: the declaration that the files were written with.
        batch_size: records per batch, over all replicas.
        shuffle_seed: None for the order of the files.
        num_records: number of records to hold in memory for shuffling; by default all, which are
            counted first. A smaller number shuffles less.
        repeat: whether the data set never ends.
        drop_remainder: drop a last batch that is not full; gives static shapes.
        skip_batches: skip so many batches before anything is parsed.
        replicas: the replicas that this process feeds; None for whole batches.
        shard_files: see above.
        cut_padding: cut features that are `per_token` after the longest text of an element, at a
            multiple of 8.
        group_by_length: form batches of texts of similar length: the rows of 50 batches are
            regrouped, and the batches come in random order.

    Returns:
        A data set of dicts as `records.parse` returns them.

    Raises:
        UserError: a file is missing, there is nothing to shuffle, or a batch cannot be split over
            processes that read their own files.
        ValueError: there are no paths.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str) else list(path_or_paths)
    require_files(paths)
    processes = replicas.total // replicas.count if replicas else 1
    if shard_files and repeat and replicas and len(paths) >= processes > 1:
        if batch_size % processes:
            raise UserError(
                f"A batch of {batch_size} cannot be split over {processes} processes that read "
                "files of their own: choose a multiple"
            )
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

    found = batches.map(finish, num_parallel_calls=num_cores()).prefetch(2)
    options = tf.data.Options()
    # The tuning thread may miss its cancellation and sleep on, and whoever drops the iterator then
    # waits for up to a minute.
    options.autotune.enabled = False
    return found.with_options(options)


def _lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Position after the last token of each row: [B, .., S] -> [B]."""
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
