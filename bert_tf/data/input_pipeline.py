"""From record files to batches: order, shares of replicas, lengths (tf.data).

B batch, S max_seq_length. Batches hold serialized records until all is decided; then one call
parses what a replica gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.backend import tf
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import Feature, count_records, parse, require_files
from bert_tf.errors import UserError

# Lengths of batches are multiples of this: GPUs like it, and fewer shapes are met.
LENGTH_MULTIPLE = 8
# Rows among which batches of similar length are formed; where they are shuffled, the batches
# from whose rows they are formed: fewer, for the order to stay random.
_WINDOW = 4096
_SHUFFLED_BATCHES = 50
# Files that are read in turn, where order is random.
_FILES_AT_ONCE = 16
# The number of a row in the files, in batches that ask for it.
ROW_NUMBER = "row_number"

# Serialized records [B], and their numbers in the files [B].
_Batch = tuple[tf.Tensor, tf.Tensor]


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


# None of the functions below branches on a tensor: to look for that takes half a second.
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
    pad_to: int | None = None,
    skip_batches: int = 0,
    take_records: int | None = None,
    replicas: Replicas | None = None,
    shard_files: bool = False,
    cut_padding: bool = False,
    group_by_length: bool = False,
    row_numbers: bool = False,
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
        take_records: end after so many records.
        replicas: whose parts of the batches to give; None for whole batches.
        shard_files: see above.
        cut_padding: cut what stands behind the longest text of an element, by `input_mask`, from
            all features that are `per_token`; lengths are then multiples of 8.
        group_by_length: form batches of texts of similar length. In a set that is shuffled, the
            batches of 50 are formed anew from their rows and come in random order; otherwise
            those of some thousand rows, the longest first.
        row_numbers: add `row_number`, int64 [B], which counts the records from 0.

    Returns:
        A dataset of dicts as of `records.parse`.

    Raises:
        UserError: a file is missing, there is nothing to shuffle, or a batch cannot be split over
            processes with files of their own.
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
    if take_records is not None:
        records = records.take(take_records)
    if group_by_length:
        (mask,) = (feature for feature in features if feature.name == "input_mask")
        batches = _grouped(records, mask, batch_size, drop_remainder, shuffle_seed, skip_batches)
    else:
        batches = _numbered(records, batch_size, drop_remainder).skip(skip_batches)
    if pad_to:
        batches = batches.map(lambda *batch: _padded(batch, pad_to))
    if replicas:
        full = drop_remainder or bool(pad_to)
        batches = _parts(batches, replicas.bounds(pad_to or batch_size), full)
    parse_batch = parse(features)

    def finish(serialized: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        # One call parses a whole batch.
        batch = parse_batch(serialized)
        if cut_padding:
            batch = _without_padding(batch, features)
        return {**batch, ROW_NUMBER: numbers} if row_numbers else batch

    found = batches.map(finish, num_parallel_calls=num_cores()).prefetch(2)
    options = tf.data.Options()
    # The thread that tunes a pipeline is woken before it is told to end. When it looks in between,
    # whoever drops the iterator waits for its next turn, which may be a minute away.
    options.autotune.enabled = False
    return found.with_options(options)


def _lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Places up to the last one that is not padding: [B, S] -> [B]."""
    places = tf.range(1, tf.shape(input_mask)[1] + 1)
    return tf.reduce_max(tf.where(input_mask != 0, places, 0), axis=1)


def _without_padding(
    batch: dict[str, tf.Tensor], features: Sequence[Feature]
) -> dict[str, tf.Tensor]:
    longest = tf.reduce_max(_lengths(batch["input_mask"]))
    multiples = tf.maximum(1, (longest + LENGTH_MULTIPLE - 1) // LENGTH_MULTIPLE)
    cut = {feature.name for feature in features if feature.per_token}
    return {
        name: value[:, : multiples * LENGTH_MULTIPLE] if name in cut else value
        for name, value in batch.items()
    }


def _numbered(records: tf.data.Dataset, size: int, drop_remainder: bool) -> tf.data.Dataset:
    """Batches of records and of their numbers in the set.

    The numbers are made once per batch: one by one, they cost more than reading and parsing.
    """

    def numbers(index: tf.Tensor, batch: tf.Tensor) -> _Batch:
        return batch, index * size + tf.range(tf.size(batch, tf.int64))

    return records.batch(size, drop_remainder=drop_remainder).enumerate().map(numbers)


def _grouped(
    records: tf.data.Dataset,
    mask: Feature,
    batch_size: int,
    drop_remainder: bool,
    shuffle_seed: int | None,
    skip_batches: int,
) -> tf.data.Dataset:
    """Batches of serialized records of similar length, formed in windows of the data set."""
    per_window = _SHUFFLED_BATCHES if shuffle_seed is not None else max(1, _WINDOW // batch_size)
    parse_mask = parse([mask])

    def form(window: tf.Tensor, batch: _Batch) -> tf.data.Dataset:
        serialized, numbers = batch
        lengths = _lengths(parse_mask(serialized)[mask.name])
        # The longest first: what does not fit into the memory fails at once.
        ordered = tf.argsort(lengths, direction="DESCENDING", stable=True)
        rows = tf.size(ordered)
        count = rows // batch_size if drop_remainder else (rows + batch_size - 1) // batch_size
        order = tf.range(count)
        if shuffle_seed is not None:
            address = tf.stack([tf.constant(shuffle_seed, tf.int64), window])
            order = tf.argsort(tf.random.stateless_uniform([count], address))

        def one(index: tf.Tensor) -> _Batch:
            chosen = ordered[index * batch_size : (index + 1) * batch_size]
            if drop_remainder:
                chosen = tf.ensure_shape(chosen, [batch_size])
            return tf.gather(serialized, chosen), tf.gather(numbers, chosen)

        return tf.data.Dataset.from_tensor_slices(order).map(one)

    windows: Any = _numbered(records, per_window * batch_size, drop_remainder=False).enumerate()
    formed = windows.skip(skip_batches // per_window).flat_map(form)
    return formed.skip(skip_batches % per_window)


def _padded(batch: _Batch, rows: int) -> _Batch:
    def padded(values: tf.Tensor) -> tf.Tensor:
        missing = rows - tf.shape(values)[0]
        full = tf.concat([values, tf.repeat(values[-1:], missing)], axis=0)
        return tf.ensure_shape(full, [rows])

    serialized, numbers = batch
    return padded(serialized), padded(numbers)


def _parts(
    batches: tf.data.Dataset, bounds: Sequence[tuple[int, int]], full: bool
) -> tf.data.Dataset:
    """A data set of the parts of batches of serialized records."""
    sizes = {stop - start for start, stop in bounds}
    size = sizes.pop() if full and len(sizes) == 1 else None
    starts, stops = (tf.constant(side) for side in zip(*bounds, strict=True))

    def part(values: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        rows = values[start:stop]
        # Parts of the same size have a shape that is known.
        return tf.ensure_shape(rows, [size]) if size else rows

    def split(*batch: tf.Tensor) -> tf.data.Dataset:
        limits = tf.data.Dataset.from_tensor_slices((starts, stops))
        return limits.map(lambda *limit: tuple(part(values, *limit) for values in batch))

    return batches.flat_map(split)


def _shuffled(paths: Sequence[str], buffer_size: int, seed: int, repeat: bool) -> tf.data.Dataset:
    epochs = tf.data.Dataset.counter() if repeat else tf.data.Dataset.range(1)

    def one_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        address = tf.stack([tf.constant(seed, tf.int64), epoch])
        epoch_seed: Any = tf.random.stateless_uniform([], address, 0, 2**62, tf.int64)
        names = tf.data.Dataset.from_tensor_slices(list(paths))
        names = names.shuffle(len(paths), seed=epoch_seed, reshuffle_each_iteration=False)
        # Of several files in turn: what does not fit into the buffer is mixed by that.
        records = names.interleave(
            tf.data.TFRecordDataset, cycle_length=min(len(paths), _FILES_AT_ONCE)
        )
        return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)

    return epochs.flat_map(one_epoch)
