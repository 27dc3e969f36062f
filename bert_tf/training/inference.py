"""Inference over rows: batches of similar length, results in the order of the rows.

n rows, B batch size, C texts of a row, S max_seq_length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.input_pipeline import LENGTH_MULTIPLE
from bert_tf.data.parallel import map_in_order
from bert_tf.data.records import Feature, read_chunks
from bert_tf.errors import UserError
from bert_tf.progress import bar
from bert_tf.training.devices import Devices
from bert_tf.training.precision import cast_once
from bert_tf.training.step import Batch

# Larger batches than so many tokens gain nothing on a CPU.
_MAX_BATCH_TOKENS = 2048
# Records that are read, and sorted by length, at a time.
_CHUNK_ROWS = 4096

Rows = Mapping[str, np.ndarray]


class _BatchPlan(NamedTuple):
    """Row numbers of a batch, the length to cut them to, and the number of rows to pad to."""

    rows: np.ndarray
    length: int
    size: int


class Inference:
    """Runs a model over rows without dropout; several threads may share it.

    Equal rows are computed once, since queries, titles and parts of pairs often repeat. The model
    is traced once, for all lengths or for the fixed one. Its weights are those of the moment of
    construction if `devices.precision` is not float32, otherwise the current ones.

    Args:
        model: takes a batch.
        fetch: (outputs, batch) -> tensors [B, ...] to return.
        features: inputs of the model and of `fetch`; `input_mask` is one of them.
        devices: where to compute; several replicas share each batch.
        batch_size: rows of a batch.
        grow: whether batches of short rows may be larger. They never have more tokens than
            `batch_size` rows of S tokens.

    Attributes:
        step: the traced function.
    """

    def __init__(
        self,
        model: keras.Model,
        fetch: Callable[[Any, Batch], Mapping[str, Any]],
        features: Sequence[Feature],
        devices: Devices,
        batch_size: int,
        grow: bool = True,
    ) -> None:
        replicas = devices.replicas
        self._devices = devices
        self._batch_size = -(-batch_size // replicas) * replicas
        self._features = tuple(features)
        # Replicas need parts of equal size.
        self._full = devices.needs_full_batches or replicas > 1
        self._grow = grow and not self._full and not devices.fixed_shapes
        with devices.strategy.scope():
            model = cast_once(model, devices.precision)
        self.step = _traced(model, fetch, self._signature(), devices, self._batch_size)

    def predict(self, rows: Rows) -> dict[str, np.ndarray]:
        """Returns the outputs of all rows [n, ...], in their order.

        All dimensions but the first must be the same for every length of a batch.
        """
        results = self._empty(len(rows["input_mask"]))
        for numbers, outputs in self.batches(rows):
            for name, values in outputs.items():
                results[name][numbers] = values
        return results

    def predict_records(
        self, paths: str | Sequence[str], num_rows: int, description: str
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of the first `num_rows` records, starting over when they run out.

        Args:
            paths: the record files.
            num_rows: number of rows, at most that of the records unless they are to be repeated.
            description: name of the progress bar.
        """
        results = self._empty(num_rows)
        first = 0
        with bar(num_rows, description) as shown:
            for chunk in self._chunks(paths, num_rows):
                for numbers, outputs in self.batches(chunk):
                    for name, values in outputs.items():
                        results[name][first + numbers] = values
                    shown.update(len(numbers))
                first += len(chunk["input_mask"])
        return results

    def _chunks(self, paths: str | Sequence[str], num_rows: int) -> Iterator[Rows]:
        """Reads so many rows, from the first again when the files end."""
        missing = num_rows
        while missing:
            before = missing
            for chunk in read_chunks(paths, self._features, _CHUNK_ROWS):
                count = min(len(chunk["input_mask"]), missing)
                missing -= count
                yield {name: values[:count] for name, values in chunk.items()}
                if not missing:
                    return
            if missing == before:
                raise UserError(f"{paths} contains no records")

    def batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields row numbers and their outputs batch by batch, the longest rows first.

        Args:
            rows: a value [n, ...] for each feature; others are ignored.
        """
        columns = {feature.name: rows[feature.name] for feature in self._features}
        if not len(columns["input_mask"]):
            return
        first, groups = _group_equal_rows(columns)
        distinct = {name: values[first] for name, values in columns.items()}
        plans = list(self._plan(distinct["input_mask"]))

        def run(plan: _BatchPlan) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return plan.rows, self._run(distinct, plan)

        if len(plans) == 1 or self._devices.replicas > 1:
            found: Iterator[Any] = map(run, plans)
        else:
            found = map_in_order(run, plans, self._devices.batches_at_once)
        for numbers, outputs in found:
            equal = [groups[number] for number in numbers]
            # One copy at a time: never more rows than the batch had, however many are equal.
            for copy in range(max(map(len, equal))):
                kept = [row for row, group in enumerate(equal) if len(group) > copy]
                yield (
                    np.array([equal[row][copy] for row in kept]),
                    {name: value[kept] for name, value in outputs.items()} if copy else outputs,
                )

    def _signature(self) -> dict[str, tf.TensorSpec]:
        rows = self._batch_size if self._full else None
        specs = {}
        for feature in self._features:
            shape: list[int | None] = [rows, *feature.shape]
            if feature.per_token and not self._devices.fixed_shapes:
                shape[-1] = None
            specs[feature.name] = tf.TensorSpec(shape, _dtype(feature))
        return specs

    def _empty(self, rows: int) -> dict[str, np.ndarray]:
        """Arrays for the outputs of so many rows; dimensions that vary with the length are 0."""
        return {
            name: np.empty(
                (rows, *(size or 0 for size in spec.shape[1:])), spec.dtype.as_numpy_dtype
            )
            for name, spec in self.step.structured_outputs.items()
        }

    def _plan(self, input_mask: np.ndarray) -> Iterator[_BatchPlan]:
        max_length, texts = input_mask.shape[-1], int(np.prod(input_mask.shape[1:-1]))
        lengths = _last_token(input_mask)
        order = np.argsort(-lengths, kind="stable")
        multiple = LENGTH_MULTIPLE if self._devices.has_gpus else 1
        first = 0
        while first < len(order):
            length, size = max_length, self._batch_size
            if not self._devices.fixed_shapes:
                longest = max(int(lengths[order[first]]), 1)
                length = min(-(-longest // multiple) * multiple, max_length)
            if self._grow:
                tokens = min(_MAX_BATCH_TOKENS, self._batch_size * max_length * texts)
                size = max(size, tokens // (length * texts))
            yield _BatchPlan(order[first : first + size], length, size if self._full else 0)
            first += size

    def _run(self, rows: Rows, plan: _BatchPlan) -> dict[str, np.ndarray]:
        count = len(plan.rows)
        numbers = np.pad(plan.rows, (0, max(plan.size - count, 0)), "edge")
        inputs = {}
        for feature in self._features:
            values = rows[feature.name][numbers]
            values = values[..., : plan.length] if feature.per_token else values
            inputs[feature.name] = tf.constant(values, _dtype(feature))
        return {name: value.numpy()[:count] for name, value in self.step(inputs).items()}


def _traced(
    model: keras.Model,
    fetch: Callable[[Any, Batch], Mapping[str, Any]],
    signature: Mapping[str, tf.TensorSpec],
    devices: Devices,
    batch_size: int,
) -> Any:
    """The compiled function from a batch to the outputs of all its rows, in order."""
    strategy, replicas = devices.strategy, devices.replicas

    def compute(batch: Batch) -> dict[str, Any]:
        return dict(fetch(model(batch, training=False), batch))

    # With several replicas XLA compiles what each of them computes by itself.
    several = replicas > 1
    if devices.jit_compile and several:
        compute = tf.function(compute, jit_compile=True, autograph=False)

    def replica_step(batch: Batch) -> dict[str, Any]:
        if not several:
            return compute(batch)
        context = tf.distribute.get_replica_context()
        size = batch_size // replicas
        numbers = context.replica_id_in_sync_group * size + tf.range(size)
        outputs = compute({name: tf.gather(value, numbers) for name, value in batch.items()})
        # A copy, because an input that is only passed through cannot be gathered; its shape is
        # lost in gathering.
        return {
            name: tf.ensure_shape(
                context.all_gather(tf.identity(value), axis=0), [batch_size, *value.shape[1:]]
            )
            for name, value in outputs.items()
        }

    @tf.function(
        input_signature=[dict(signature)],
        jit_compile=devices.jit_compile and not several,
        autograph=False,
    )
    def step(batch: Batch) -> dict[str, tf.Tensor]:
        outputs = strategy.run(replica_step, args=(batch,))
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in outputs.items()
        }

    # Traced now, and never again.
    return step.get_concrete_function()


def _dtype(feature: Feature) -> tf.DType:
    return tf.float32 if feature.dtype == "float32" else tf.int32


def _last_token(input_mask: np.ndarray) -> np.ndarray:
    """Position after the last token of each row: [n, .., S] -> [n]."""
    positions = np.arange(1, input_mask.shape[-1] + 1)
    return np.where(input_mask != 0, positions, 0).reshape(len(input_mask), -1).max(1, initial=0)


def _group_equal_rows(columns: Rows) -> tuple[np.ndarray, list[list[int]]]:
    """The first of each group of equal rows, and the numbers of all rows of each group."""
    count = len(columns["input_mask"])
    flat = [np.ascontiguousarray(values).reshape(count, -1) for values in columns.values()]
    keys = np.concatenate([values.view(np.uint8).reshape(count, -1) for values in flat], axis=1)
    groups: dict[bytes, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key.tobytes(), []).append(number)
    return np.array([numbers[0] for numbers in groups.values()], int), list(groups.values())
