"""A model over rows in memory: batches of similar length, as long as their longest row.

n rows, S max_seq_length, B batch_size, T length of a batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import Feature
from bert_tf.training.inference import make_inference_step
from bert_tf.training.step import Batch

# Tokens of a batch from which on a larger one gains nothing on a CPU.
_TOKENS_TOGETHER = 2048
# One computes while the other waits for the slowest part of an operation, or for Python.
BATCHES_AT_ONCE = 2


class _RowsOfBatch(NamedTuple):
    """Numbers of rows, the length that they are cut to, and how many there must be."""

    numbers: np.ndarray
    length: int
    pad_to: int


class RowRunner:
    """Runs a model over rows, without dropout; several threads may.

    Equal rows are computed once: queries, titles and the halves of pairs come again and again. It
    is compiled once for all lengths, or, where shapes are fixed, for the one that there is.

    Args:
        model: takes a batch.
        outputs_fn: (outputs, batch) -> tensors [B, ..] to bring back.
        features: of a row; integers, `input_mask` among them.
        strategy: where it runs; on several replicas each gets its part of a batch.
        batch_size: rows of a batch.
        grow: where shapes may differ, more short rows in a batch: never more tokens than
            `batch_size` rows of S tokens have.
        fixed_length: S where all batches must be so long, None where they may differ.
        full_batches: whether they must all have `batch_size` rows.
        length_multiple: lengths of batches are multiples of this, where they may differ.
        jit_compile: by XLA; the shapes must be fixed then.
        batches_at_once: side by side, on one replica.
    """

    def __init__(
        self,
        model: keras.Model,
        outputs_fn: Callable[[Any, Batch], dict[str, Any]],
        features: Sequence[Feature],
        *,
        strategy: tf.distribute.Strategy,
        batch_size: int,
        grow: bool = True,
        fixed_length: int | None = None,
        full_batches: bool = False,
        length_multiple: int = 1,
        jit_compile: bool = False,
        batches_at_once: int = BATCHES_AT_ONCE,
    ) -> None:
        replicas = strategy.num_replicas_in_sync
        self._batch_size = -(-batch_size // replicas) * replicas
        self._replicas = replicas
        self._grow = grow
        self._fixed_length = fixed_length
        self._length_multiple = length_multiple
        self._features = tuple(features)
        self._batches_at_once = batches_at_once
        # Parts of replicas must be of one size.
        self._full = full_batches or replicas > 1

        def part(batch: Batch) -> Batch:
            if replicas == 1:
                return batch
            context = tf.distribute.get_replica_context()
            size = self._batch_size // replicas
            numbers = context.replica_id_in_sync_group * size + tf.range(size)
            return {name: tf.gather(value, numbers) for name, value in batch.items()}

        rows = self._batch_size if self._full else None
        step = make_inference_step(
            lambda batch, training: model(part(batch), training=training),
            lambda outputs, batch: outputs_fn(outputs, part(batch)),
            {
                feature.name: tf.TensorSpec(
                    [rows, *([fixed_length] if feature.per_token else feature.shape)], tf.int32
                )
                for feature in self._features
            },
            strategy,
            jit_compile,
        )
        # Traced now, and never again.
        self._step = step.get_concrete_function()

    def __call__(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Results batch by batch, the longest rows first.

        Args:
            rows: the features, int32 [n, ..]; others are ignored.

        Returns:
            The numbers of some rows, and what `outputs_fn` gave for each of them.
        """
        first, groups = self._distinct(rows)
        distinct = rows
        if len(first) < len(rows["input_mask"]):
            distinct = {feature.name: rows[feature.name][first] for feature in self._features}
        batches = list(self._batches(distinct["input_mask"]))

        def run(batch: _RowsOfBatch) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return batch.numbers, self._run(distinct, batch)

        if len(batches) == 1 or self._replicas > 1:
            found: Iterator[Any] = map(run, batches)
        else:
            found = map_in_order(run, batches, self._batches_at_once)
        for numbers, outputs in found:
            equal = [groups[number] for number in numbers]
            # Never more rows at a time than the batch had, however many are equal.
            for copy in range(max(map(len, equal))):
                rows_left = [row for row, group in enumerate(equal) if len(group) > copy]
                yield (
                    np.array([equal[row][copy] for row in rows_left]),
                    {name: value[rows_left] for name, value in outputs.items()}
                    if copy
                    else outputs,
                )

    def _distinct(self, rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[list[int]]]:
        """The first of equal rows, and the numbers of all that are equal to each."""
        columns = [rows[feature.name] for feature in self._features]
        flat = [values.reshape(len(values), math.prod(values.shape[1:])) for values in columns]
        groups: dict[bytes, list[int]] = {}
        for number, row in enumerate(np.concatenate(flat, axis=1)):
            groups.setdefault(row.tobytes(), []).append(number)
        first = np.array([numbers[0] for numbers in groups.values()], int)
        return first, list(groups.values())

    def _batches(self, input_mask: np.ndarray) -> Iterator[_RowsOfBatch]:
        lengths = input_mask.sum(axis=1)
        order = np.argsort(-lengths, kind="stable")
        first = 0
        while first < len(order):
            length, size = self._shape(int(lengths[order[first]]), input_mask.shape[1])
            yield _RowsOfBatch(order[first : first + size], length, size if self._full else 0)
            first += size

    def _run(self, rows: Mapping[str, np.ndarray], batch: _RowsOfBatch) -> dict[str, np.ndarray]:
        count = len(batch.numbers)
        numbers = np.pad(batch.numbers, (0, max(batch.pad_to - count, 0)), "edge")
        inputs = {
            feature.name: tf.constant(
                rows[feature.name][numbers, : batch.length]
                if feature.per_token
                else rows[feature.name][numbers],
                tf.int32,
            )
            for feature in self._features
        }
        return {name: value.numpy()[:count] for name, value in self._step(inputs).items()}

    def _shape(self, longest: int, max_seq_length: int) -> tuple[int, int]:
        """Length and rows of the batch that begins with a row of so many tokens."""
        if self._fixed_length is not None:
            return self._fixed_length, self._batch_size
        length = min(-(-longest // self._length_multiple) * self._length_multiple, max_seq_length)
        if self._full or not self._grow:
            return length, self._batch_size
        tokens = min(_TOKENS_TOGETHER, self._batch_size * max_seq_length)
        return length, max(self._batch_size, tokens // length)
