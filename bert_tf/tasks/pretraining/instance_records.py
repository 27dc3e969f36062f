"""Converts pre-training instances to record features.

Shapes: n instances, S max_seq_length, P max_predictions_per_seq.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.data.feature_specs import Feature, sequence_features
from bert_tf.data.parallel import map_in_order
from bert_tf.tasks.pretraining.instances import Instance
from bert_tf.tasks.pretraining.options import PretrainingDataOptions, PretrainingOptions

_BATCH_SIZE = 1024


def record_features(options: PretrainingDataOptions | PretrainingOptions) -> tuple[Feature, ...]:
    """Returns the names, lengths and types of the features of a record."""
    max_predictions = options.max_predictions_per_seq
    return (
        *sequence_features(options.max_seq_length),
        Feature("masked_lm_positions", max_predictions),
        Feature("masked_lm_ids", max_predictions),
        Feature("masked_lm_weights", max_predictions, "float32"),
        Feature("next_sentence_labels", 1),
    )


def record_batches(
    instances: Iterable[Instance], options: PretrainingDataOptions, use_threads: bool = False
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of the instances in batches of at most `_BATCH_SIZE`."""
    iterator = iter(instances)
    batches = iter(lambda: list(itertools.islice(iterator, _BATCH_SIZE)), [])
    convert = functools.partial(_to_arrays, options=options)
    return map_in_order(convert, batches) if use_threads else map(convert, batches)


def _to_arrays(
    instances: Sequence[Instance], options: PretrainingDataOptions
) -> dict[str, np.ndarray]:
    """Returns token features [n, S], masked-LM features [n, P], and next sentence labels [n, 1]."""
    max_length, max_predictions = options.max_seq_length, options.max_predictions_per_seq
    input_ids, input_mask = _pad([instance.input_ids for instance in instances], max_length)
    positions, weights = _pad([instance.positions for instance in instances], max_predictions)
    labels, _ = _pad([instance.labels for instance in instances], max_predictions)
    first_lengths = np.array([instance.first_length for instance in instances], np.int32)
    is_second = np.arange(max_length) >= first_lengths[:, None]  # [n, S]
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


def _pad(rows: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows with zeros to int32 [n, length]; also returns a mask, which is False at padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(length) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int32)
    values = itertools.chain.from_iterable(rows)
    padded[mask] = np.fromiter(values, np.int32, int(lengths.sum()))
    return padded, mask
