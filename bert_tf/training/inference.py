"""Inference with TensorFlow, on one device or many."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.features import Feature
from bert_tf.inference.row_batches import Fetch, RowBatches, Rows, checked
from bert_tf.training.devices import Devices
from bert_tf.training.explained_errors import explained_errors
from bert_tf.training.loss import Batch, gather
from bert_tf.training.precision import assign_cast, cast_once
from bert_tf.training.step import compile_for_replicas


class Inference(RowBatches):
    """Runs a model over rows without dropout; several threads may share it.

    The model is traced once, for any sequence length unless `devices.fixed_shapes`. If
    `devices.precision` is bfloat16 or float16, the weights are copied: after they change, call
    `refresh`.

    Args:
        model: takes a batch.
        fetch: (outputs, batch) -> dict of tensors [B, ...] to return.
        features: inputs of the model and of `fetch`; `input_mask` is one of them.
        devices: where to compute; several replicas share each batch.
        batch_size: rows of a batch.
        grow: see `RowBatches`.
        compile_now: whether XLA, if used, compiles the programs for all lengths now instead of when
            they are first needed.
    """

    def __init__(
        self,
        model: keras.Model,
        fetch: Fetch,
        features: Sequence[Feature],
        devices: Devices,
        batch_size: int,
        grow: bool = True,
        compile_now: bool = False,
    ) -> None:
        replicas = devices.replicas
        max_length = next(f.shape[-1] for f in features if f.name == "input_mask")
        super().__init__(
            features,
            -(-batch_size // replicas) * replicas,
            grow=grow,
            # Replicas need parts of equal size.
            full_batches=devices.needs_full_batches or replicas > 1,
            lengths=devices.padded_lengths(max_length),
            batches_at_once=devices.batches_at_once,
        )
        self._devices, self._source = devices, model
        with devices.scope():
            self._model = cast_once(model, devices.precision)
        self.step = self._trace(self._model, checked(fetch))
        if compile_now and devices.jit_compile:
            for length in self._lengths:
                ones = {f.name: np.ones((1, *f.shape), np.int32) for f in features}
                self._run_batch(ones, np.zeros(1, int), length)

    def refresh(self) -> None:
        """Applies changes of the model's weights since the construction."""
        if self._model is not self._source:
            with self._devices.scope():
                assign_cast(self._model, self._source)

    def _compute(self, batch: Rows) -> Rows:
        types = {feature.name: _dtype(feature) for feature in self._features}
        with explained_errors():
            inputs = {name: tf.constant(values, types[name]) for name, values in batch.items()}
            return {name: value.numpy() for name, value in self.step(inputs).items()}

    def _trace(self, model: keras.Model, fetch: Fetch) -> Any:
        """Returns a traced function that computes the outputs of all rows of a batch, in order."""
        strategy, replicas = self._devices.strategy, self._devices.replicas
        jit_compile = bool(self._devices.jit_compile)

        def compute(batch: Batch) -> dict[str, Any]:
            return dict(fetch(model(batch, training=False), batch))

        if jit_compile and replicas > 1:
            compute = tf.function(compute, jit_compile=True, autograph=False)

        def replica_step(batch: Batch) -> dict[str, Any]:
            if replicas == 1:
                return compute(batch)
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            size = self._batch_size // replicas
            rows = replica * size + tf.range(size)
            outputs = compute({name: tf.gather(value, rows) for name, value in batch.items()})
            return {name: gather(value) for name, value in outputs.items()}

        step = compile_for_replicas(replica_step, strategy, jit_compile, [self._signature()])
        return step.get_concrete_function()

    def _signature(self) -> dict[str, tf.TensorSpec]:
        num_rows = self._batch_size if self._full_batches else None
        specs = {}
        for feature in self._features:
            shape: list[int | None] = [num_rows, *feature.shape]
            if feature.per_token and feature.mask == "input_mask":  # all others are not trimmed
                shape[-1] = self._lengths[0] if len(self._lengths) == 1 else None
            specs[feature.name] = tf.TensorSpec(shape, _dtype(feature))
        return specs


def _dtype(feature: Feature) -> tf.DType:
    return tf.float32 if feature.dtype == "float32" else tf.int32
