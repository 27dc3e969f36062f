"""Converts pre-training instances to the features of records.

n instances, S max_seq_length, P max_predictions_per_seq.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import Feature, sequence_features
from bert_tf.tasks.pretraining.instances import Instance, InstanceConfig

_BATCH_SIZE = 1024


def record_features(max_seq_length: int, max_predictions_per_seq: int) -> tuple[Feature, ...]:
    """Declares the records."""
    return (
        *sequence_features(max_seq_length),
        Feature("masked_lm_positions", max_predictions_per_seq),
        Feature("masked_lm_ids", max_predictions_per_seq),
        Feature("masked_lm_weights", max_predictions_per_seq, "float32"),
        Feature("next_sentence_labels", 1),
    )


def record_batches(
    instances: Iterable[Instance], config: InstanceConfig, use_threads: bool = False
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of all instances batch by batch, see `to_arrays`."""
    rest = iter(instances)
    batches = iter(lambda: list(itertools.islice(rest, _BATCH_SIZE)), [])
    convert = functools.partial(to_arrays, config=config)
    return map_in_order(convert, batches) if use_threads else map(convert, batches)


def to_arrays(instances: Sequence[Instance], config: InstanceConfig) -> dict[str, np.ndarray]:
    """Converts instances to arrays.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [n, S]; `masked_lm_positions`,
        `masked_lm_ids`: int32 [n, P]; `masked_lm_weights`: float32 [n, P];
        `next_sentence_labels`: int32 [n, 1], 1 where B is random.
    """
    max_length, max_predictions = config.max_seq_length, config.max_predictions_per_seq
    input_ids, input_mask = _padded([instance.input_ids for instance in instances], max_length)
    positions, weights = _padded([instance.positions for instance in instances], max_predictions)
    labels, _ = _padded([instance.labels for instance in instances], max_predictions)
    second_starts = np.array([instance.first_length for instance in instances], np.int32)
    is_second = np.arange(max_length) >= second_starts[:, None]  # [n, S]
    is_random_next = np.array([instance.is_random_next for instance in instances], np.int32)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask.astype(np.int32),
        "segment_ids": (input_mask & is_second).astype(np.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": is_random_next[:, None],
    }


def _padded(rows: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows with zeros: int32 [n, length], and bool [n, length], false for padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(length) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int32)
    values = itertools.chain.from_iterable(rows)
    padded[mask] = np.fromiter(values, np.int32, int(lengths.sum()))
    return padded, mask
