"""A model over rows in memory: batches of similar length, as long as their longest row.

n rows, S max_seq_length, B batch_size, T length of a batch.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.input_pipeline import LENGTH_MULTIPLE
from bert_tf.training.inference import make_inference_step
from bert_tf.training.step import Batch


class RowRunner:
    """Runs a model over rows, without dropout; several threads may.

    It is compiled once for all lengths, or, where shapes are fixed, for the one that there is.

    Args:
        model: takes a batch.
        outputs_fn: (outputs, batch) -> tensors [B, ..] to bring back.
        strategy: where it runs; on several replicas each gets its part of a batch.
        batch_size: rows of a batch.
        fixed_length: S where all batches must have the same shape, None where they may differ.
        jit_compile: by XLA; the shapes must be fixed then.
    """

    def __init__(
        self,
        model: keras.Model,
        outputs_fn: Callable[[Any, Batch], dict[str, Any]],
        *,
        strategy: tf.distribute.Strategy,
        batch_size: int,
        fixed_length: int | None = None,
        jit_compile: bool = False,
    ) -> None:
        replicas = strategy.num_replicas_in_sync
        self._batch_size = -(-batch_size // replicas) * replicas
        self._fixed_length = fixed_length
        # Parts of replicas must be of one size.
        self._full = fixed_length is not None or replicas > 1

        def part(batch: Batch) -> Batch:
            if replicas == 1:
                return batch
            context = tf.distribute.get_replica_context()
            size = self._batch_size // replicas
            first = context.replica_id_in_sync_group * size
            return {
                name: tf.slice(value, [first, 0], [size, tf.shape(value)[1]])
                for name, value in batch.items()
            }

        rows = self._batch_size if self._full else None
        self._step = make_inference_step(
            lambda batch, training: model(part(batch), training=training),
            lambda outputs, batch: outputs_fn(outputs, part(batch)),
            {
                name: tf.TensorSpec([rows, fixed_length], tf.int32)
                for name in ("input_ids", "input_mask", "segment_ids")
            },
            strategy,
            jit_compile,
        )

    def __call__(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields results batch by batch, the longest rows first.

        Args:
            rows: `input_ids`, `input_mask`, `segment_ids`: int32 [n, S].

        Yields:
            The numbers of some rows, and what `outputs_fn` gave for each of them.
        """
        lengths = rows["input_mask"].sum(axis=1)
        order = np.argsort(-lengths, kind="stable")
        for first in range(0, len(order), self._batch_size):
            numbers = order[first : first + self._batch_size]
            length = self._fixed_length
            if length is None:
                length = -(-int(lengths[numbers[0]]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            missing = self._batch_size - len(numbers) if self._full else 0
            taken = np.pad(numbers, (0, missing), "edge")
            batch = {
                name: tf.constant(rows[name][taken, :length])
                for name in ("input_ids", "input_mask", "segment_ids")
            }
            outputs = self._step(batch)
            yield numbers, {name: v.numpy()[: len(numbers)] for name, v in outputs.items()}
