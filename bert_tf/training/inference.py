"""Inference over rows: batches of similar length, results in the order of the rows.

n rows, B batch size, C texts of a row, S max_seq_length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
from bert_tf.training.step import Batch, compile_for_replicas

# On a CPU, larger batches gain nothing.
_MAX_BATCH_TOKENS = 2048
# Number of records to read, and to sort by length, at a time.
_CHUNK_ROWS = 4096

Rows = Mapping[str, np.ndarray]


class Inference:
    """Runs a model over rows without dropout; several threads may share it.

    Equal rows are computed once, since queries, titles and parts of pairs often repeat. The model
    is traced once, for all lengths or for the fixed one. Unless `devices.precision` is float32,
    later changes of the weights have no effect.

    Args:
        model: takes a batch.
        fetch: (outputs, batch) -> tensors [B, ...] to return.
        features: inputs of the model and of `fetch`; `input_mask` is one of them.
        devices: where to compute; several replicas share each batch.
        batch_size: rows of a batch.
        grow: whether batches of short rows may have more rows, but never more tokens than
            `batch_size` rows of S tokens.
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
        self.step = self._traced(model, fetch)

    def predict(self, rows: Rows) -> dict[str, np.ndarray]:
        """Returns the outputs [n, ...] of all rows, in order; only n may depend on the batch."""
        results = self._empty(len(rows["input_mask"]))
        for numbers, outputs in self.batches(rows):
            for name, values in outputs.items():
                results[name][numbers] = values
        return results

    def predict_records(
        self, paths: str | Sequence[str], num_rows: int, description: str
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of the first `num_rows` records, starting over when they run out."""
        results, first = self._empty(num_rows), 0
        with bar(num_rows, description) as shown:
            while first < num_rows:
                begin = first
                for chunk in read_chunks(paths, self._features, _CHUNK_ROWS):
                    rows = {name: values[: num_rows - first] for name, values in chunk.items()}
                    for numbers, outputs in self.batches(rows):
                        for name, values in outputs.items():
                            results[name][first + numbers] = values
                        shown.update(len(numbers))
                    first += len(rows["input_mask"])
                    if first == num_rows:
                        break
                if first == begin:
                    raise UserError(f"{paths} contains no records")
        return results

    def batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields row numbers and their outputs batch by batch, the longest rows first.

        `rows` has a value [n, ...] for each feature; others are ignored.
        """
        columns = {feature.name: rows[feature.name] for feature in self._features}
        groups = _equal_rows(columns)
        first = np.array([group[0] for group in groups], int)
        distinct = {name: values[first] for name, values in columns.items()}

        def run(plan: tuple[np.ndarray, int]) -> dict[str, np.ndarray]:
            return self._run(distinct, *plan)

        plans = list(self._plan(distinct["input_mask"]))
        threads = self._devices.batches_at_once if len(plans) > 1 else 1
        found = map_in_order(run, plans, threads) if threads > 1 else map(run, plans)
        for (numbers, _), outputs in zip(plans, found, strict=True):
            equal = [groups[number] for number in numbers]
            copies = [len(group) for group in equal]
            repeated = {name: np.repeat(value, copies, axis=0) for name, value in outputs.items()}
            yield np.concatenate(equal), repeated

    def _traced(self, model: keras.Model, fetch: Callable[[Any, Batch], Mapping[str, Any]]) -> Any:
        """Compiles the function from a batch to the outputs of all its rows, in order."""
        strategy, replicas = self._devices.strategy, self._devices.replicas
        jit_compile, batch_size = self._devices.jit_compile, self._batch_size

        def compute(batch: Batch) -> dict[str, Any]:
            return dict(fetch(model(batch, training=False), batch))

        if jit_compile and replicas > 1:
            compute = tf.function(compute, jit_compile=True, autograph=False)

        def replica_step(batch: Batch) -> dict[str, Any]:
            if replicas == 1:
                return compute(batch)
            context = tf.distribute.get_replica_context()
            size = batch_size // replicas
            numbers = context.replica_id_in_sync_group * size + tf.range(size)
            outputs = compute({name: tf.gather(value, numbers) for name, value in batch.items()})

            def gather(value: Any) -> Any:
                # TensorFlow cannot gather an input that is passed through, hence the copy.
                gathered = context.all_gather(tf.identity(value), axis=0)
                # Gathering loses the static shape.
                return tf.ensure_shape(gathered, [batch_size, *value.shape[1:]])

            return {name: gather(value) for name, value in outputs.items()}

        step = compile_for_replicas(replica_step, strategy, jit_compile, [self._signature()])
        return step.get_concrete_function()

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
        results = {}
        for name, spec in self.step.structured_outputs.items():
            # Dimensions that depend on the length become 0.
            shape = rows, *(size or 0 for size in spec.shape[1:])
            results[name] = np.empty(shape, spec.dtype.as_numpy_dtype)
        return results

    def _plan(self, input_mask: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the row numbers of each batch, and the length to cut its rows to."""
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
            yield order[first : first + size], length
            first += size

    def _run(self, rows: Rows, numbers: np.ndarray, length: int) -> dict[str, np.ndarray]:
        count = len(numbers)
        if self._full:
            numbers = np.pad(numbers, (0, self._batch_size - count), "edge")
        inputs = {}
        for feature in self._features:
            values = rows[feature.name][numbers]
            values = values[..., :length] if feature.per_token else values
            inputs[feature.name] = tf.constant(values, _dtype(feature))
        return {name: value.numpy()[:count] for name, value in self.step(inputs).items()}


def _dtype(feature: Feature) -> tf.DType:
    return tf.float32 if feature.dtype == "float32" else tf.int32


def _last_token(input_mask: np.ndarray) -> np.ndarray:
    # [n, .., S] -> [n]: the position after the last token.
    positions = np.arange(1, input_mask.shape[-1] + 1)
    axes = tuple(range(1, input_mask.ndim))
    return np.where(input_mask != 0, positions, 0).max(axes, initial=0)


def _equal_rows(columns: Rows) -> list[list[int]]:
    """Groups the numbers of equal rows."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        groups.setdefault(b"".join(value.tobytes() for value in row), []).append(number)
    return list(groups.values())
