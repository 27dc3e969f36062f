"""tf.data input pipeline: shuffles, shards and batches records, and groups them by length.

B is the batch size, S is max_seq_length. Records stay serialized until they are batched, so that
each process parses only the records that it needs.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from bert_tf.base import files
from bert_tf.base.backend import tf
from bert_tf.base.errors import UserError
from bert_tf.data.features import Feature
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import find_blocks, make_parse_fn

# Batches are trimmed to a multiple of this length: faster on GPUs, and fewer distinct shapes.
LENGTH_MULTIPLE = 8
# Number of batches in a window that is grouped by length. A larger one would be less random.
_WINDOW_BATCHES = 50
# Number of files, or blocks of files, that a shuffled dataset reads in turn.
_INTERLEAVED = 16
# Records are shuffled in memory if their files have at most these bytes; else in blocks, and then
# in a buffer of about so many bytes.
SHUFFLED_IN_MEMORY, _BUFFER_BYTES = 2 << 30, 1 << 26
# Bytes that TensorFlow reads at a time, as in `tf.data.TFRecordDataset`.
_READ_BYTES = 1 << 18

# Path, offset of the first record in bytes, and number of records; -1 for all.
_Block = tuple[str, int, int]


# AutoGraph would take half a second, and is not needed: nothing here branches on tensors.
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
    context: tf.distribute.InputContext | None = None,
    trim_padding: bool = False,
    length: int | None = None,
    group_by_length: bool = False,
) -> tf.data.Dataset:
    """Returns batches of parsed records, shuffled and repeated on request.

    As in the original BERT code, a batch of a repeated dataset may contain the end of one epoch and
    the start of the next. However, each epoch shuffles all records, not only windows of 100. If the
    files have more than 2 GB, it shuffles blocks of 1,024 records, and then windows of 64 MB. The
    order depends only on `shuffle_seed`, the epoch and `tf.random.set_seed`, if called, so that
    `skip_batches` can resume a run.

    With a `context`, each element is one replica's share of a batch, in the order of the replicas.
    Each process then reads all records but parses only its own, so that the shares together equal
    the batch of a single device. The exception is a repeated dataset with at least as many files as
    processes: there each process forms its batches from a subset of the files.

    Args:
        path_or_paths: one file, or several in reading order.
        features: the features that the files were written with.
        batch_size: records per batch, over all replicas.
        shuffle_seed: None keeps the order of the files.
        num_records: size of the shuffle buffer; None counts the records, and holds them all if
            their files have at most 2 GB.
        repeat: repeat the records without end.
        drop_remainder: drop an incomplete last batch, so that shapes are static.
        skip_batches: number of batches to skip without parsing them.
        context: the replicas that this process feeds; None for undivided batches.
        trim_padding: trim `per_token` features to the longest text of the batch or share, rounded
            up to a multiple of 8.
        length: trim `per_token` features to this number of tokens, the length of the longest text.
        group_by_length: form batches of texts of similar length, within windows of 50 batches, and
            return them in random order.

    Returns:
        A dataset of dicts that map feature names to int32 or float32 tensors [rows, *shape].

    Raises:
        UserError: a file is missing, there are no records to shuffle, or each process reads a
            subset of the files and `batch_size` is not a multiple of the number of processes.
    """
    paths = [path_or_paths] if isinstance(path_or_paths, str) else list(path_or_paths)
    for path in paths:
        files.open_binary(path).close()  # Raises a clearer error for a missing file.
    num_processes = context.num_input_pipelines if context else 1
    if repeat and context and len(paths) >= num_processes > 1:
        if batch_size % num_processes:
            raise UserError(f"{num_processes} processes cannot evenly share {batch_size} rows")
        paths = paths[context.input_pipeline_id :: num_processes]
        batch_size //= num_processes
        num_replicas = context.num_replicas_in_sync // num_processes
        context = tf.distribute.InputContext(num_replicas_in_sync=num_replicas)
    if shuffle_seed is not None:
        blocks, buffer_size = [(path, 0, -1) for path in paths], num_records
        if not buffer_size:
            blocks, buffer_size = _plan_shuffling(paths)
        records = _read_shuffled(blocks, buffer_size, shuffle_seed, repeat)
    else:
        records = tf.data.TFRecordDataset(paths).repeat(None if repeat else 1)
    if group_by_length:
        (mask_feature,) = (feature for feature in features if feature.name == "input_mask")
        batches = _group_by_length(
            records, mask_feature, batch_size, drop_remainder, shuffle_seed or 0, skip_batches
        )
    else:
        batches = records.batch(batch_size, drop_remainder=drop_remainder).skip(skip_batches)
    if context:
        batches = _split_by_replica(batches, batch_size, context, drop_remainder)
    parse_batch = make_parse_fn(features)

    def parse_and_trim(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse_batch(serialized)
        return _trim_padding(batch, features, length) if trim_padding or length else batch

    options = tf.data.Options()
    # Deleting an iterator can take a minute if its autotune thread misses the cancellation.
    options.autotune.enabled = False
    parsed = batches.map(parse_and_trim, num_parallel_calls=num_cores())
    return parsed.prefetch(2).with_options(options)


def _compute_lengths(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the unpadded length of each row or of its longest choice: [B, .., S] -> [B]."""
    positions = tf.range(1, tf.shape(input_mask)[-1] + 1)
    ends = tf.reshape(tf.where(input_mask != 0, positions, 0), [tf.shape(input_mask)[0], -1])
    return tf.reduce_max(ends, axis=1)


def _trim_padding(
    batch: dict[str, tf.Tensor], features: Sequence[Feature], length: int | None
) -> dict[str, tf.Tensor]:
    mask_of = {feature.name: feature.mask for feature in features if feature.per_token}
    lengths: dict[str, Any] = {}
    for mask in dict.fromkeys(mask_of.values()):
        longest = tf.reduce_max(_compute_lengths(batch[mask]))
        blocks = tf.maximum(1, (longest + LENGTH_MULTIPLE - 1) // LENGTH_MULTIPLE)
        lengths[mask] = LENGTH_MULTIPLE * blocks
    if length is not None:
        lengths = {**dict.fromkeys(lengths), "input_mask": length}
    return {
        name: value[..., : lengths[mask_of[name]]] if name in mask_of else value
        for name, value in batch.items()
    }


def _group_by_length(
    records: tf.data.Dataset,
    mask_feature: Feature,
    batch_size: int,
    drop_remainder: bool,
    shuffle_seed: int,
    skip_batches: int,
) -> tf.data.Dataset:
    """Forms batches of serialized records of similar length, separately in each window."""
    parse_mask = make_parse_fn([mask_feature])

    def batch_window(window_index: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
        lengths = _compute_lengths(parse_mask(serialized)[mask_feature.name])
        by_length = tf.argsort(lengths, direction="DESCENDING", stable=True)
        size = tf.size(by_length)
        num_batches = (size if drop_remainder else size + batch_size - 1) // batch_size
        seed = tf.stack([tf.constant(shuffle_seed, tf.int64), window_index])
        order = tf.argsort(tf.random.stateless_uniform([num_batches], seed))

        def gather_batch(index: tf.Tensor) -> tf.Tensor:
            rows = by_length[index * batch_size : (index + 1) * batch_size]
            rows = tf.ensure_shape(rows, [batch_size if drop_remainder else None])
            return tf.gather(serialized, rows)

        return tf.data.Dataset.from_tensor_slices(order).map(gather_batch)

    windows: Any = records.batch(_WINDOW_BATCHES * batch_size).enumerate()
    grouped = windows.skip(skip_batches // _WINDOW_BATCHES).flat_map(batch_window)
    return grouped.skip(skip_batches % _WINDOW_BATCHES)


def _split_by_replica(
    batches: tf.data.Dataset,
    batch_size: int,
    context: tf.distribute.InputContext,
    drop_remainder: bool,
) -> tf.data.Dataset:
    """Splits batches into one element per replica; their sizes differ by at most one."""
    total = context.num_replicas_in_sync
    ends = [batch_size * replica // total for replica in range(total + 1)]
    count = total // context.num_input_pipelines
    first = context.input_pipeline_id * count
    bounds = list(itertools.pairwise(ends[first : first + count + 1]))
    sizes = {stop - start for start, stop in bounds}
    static_size = sizes.pop() if drop_remainder and len(sizes) == 1 else None
    starts, stops = (tf.constant(side) for side in zip(*bounds, strict=True))

    def split(batch: tf.Tensor) -> tf.data.Dataset:
        slices = tf.data.Dataset.from_tensor_slices((starts, stops))
        return slices.map(lambda start, stop: tf.ensure_shape(batch[start:stop], [static_size]))

    return batches.flat_map(split)


def _plan_shuffling(paths: Sequence[str]) -> tuple[list[_Block], int]:
    """Returns what to read in random order, and the size of the shuffle buffer."""
    blocks = [(path, *block) for path in paths for block in find_blocks(path)]
    count, num_bytes = sum(count for *_, count in blocks), sum(map(files.size, paths))
    if not count:
        raise UserError(f"No records in {', '.join(paths)}")
    if num_bytes <= SHUFFLED_IN_MEMORY:
        return [(path, 0, -1) for path in paths], count
    return blocks, max(1, count * _BUFFER_BYTES // num_bytes)


def _read_block(path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
    # The class `TFRecordDataset` cannot start within a file.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=path[None],
        compression_type="",
        buffer_size=_READ_BYTES,
        byte_offsets=offset[None],
    )
    records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    return records.take(count)


def _read_shuffled(
    blocks: Sequence[_Block], buffer_size: int, seed: int, repeat: bool
) -> tf.data.Dataset:
    paths, offsets, counts = zip(*blocks, strict=True)
    columns = list(paths), tf.constant(offsets, tf.int64), tf.constant(counts, tf.int64)
    epochs = tf.data.Dataset.counter() if repeat else tf.data.Dataset.range(1)

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        graph: Any = tf.compat.v1.get_default_graph()
        # If the global seed is 0 (modulo 2^31 - 1), `shuffle` would need the value of its own seed.
        if graph.seed is not None and graph.seed % (2**31 - 1) == 0:
            graph.seed = 1
        seed_and_epoch = tf.stack([tf.constant(seed, tf.int64), epoch])
        epoch_seed: Any = tf.random.stateless_uniform([], seed_and_epoch, 0, 2**62, tf.int64)
        shuffled: Any = tf.data.Dataset.from_tensor_slices(columns)
        shuffled = shuffled.shuffle(len(blocks), seed=epoch_seed, reshuffle_each_iteration=False)
        # Interleaving mixes the records of different files even if the buffer cannot hold them all.
        records = shuffled.interleave(_read_block, cycle_length=min(len(blocks), _INTERLEAVED))
        return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)

    return epochs.flat_map(read_epoch)
