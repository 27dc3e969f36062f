"""The distributed training step: loss, gradients, all-reduce, clipping, update."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.dropout import fold_in
from bert_tf.optimization import AdamWeightDecay
from bert_tf.options import TrainingOptions
from bert_tf.training.devices import Devices
from bert_tf.training.loss import Batch, Loss, cache_gradients, compute_share, map_batches
from bert_tf.training.precision import LossScale

SUM = tf.distribute.ReduceOp.SUM


@dataclasses.dataclass(eq=False)
class TrainState:
    """A model, its optimizer (built on the trainable variables) and the loss scale, if any."""

    model: keras.Model
    optimizer: AdamWeightDecay
    loss_scale: LossScale | None = None

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return int(self.optimizer.iterations.numpy())

    @property
    def extra_variables(self) -> dict[str, keras.Variable]:
        """Variables to checkpoint in addition to the model's and the optimizer's, by name."""
        return self.loss_scale.variables if self.loss_scale else {}


def make_train_step(
    state: TrainState,
    loss: Loss,
    options: TrainingOptions,
    devices: Devices,
    element_spec: Any = None,
    loss_uses_padding: bool = False,
) -> Callable[[Any, Any], dict[str, tf.Tensor]]:
    """Compiles a function that updates the model from one batch.

    If repeated runs are to be bit-identical without XLA, the number of rows must not be static:
    with static shapes, TensorFlow's memory optimizer (Grappler) rewrites sums of three or more
    gradients to add them in the order in which they become ready, and this cannot be disabled.

    Args:
        state: created in the strategy's scope.
        options: `gradient_accumulation_steps` must divide the rows per replica.
        element_spec: type of the batches; the function is traced once, not for each new shape.

    Returns:
        (batch, stop) -> dict of scalars that are equal in all replicas: `loss` before the update;
        `learning_rate` of the update; `gradient_norm` before clipping (after, with
        `gradient_clip_scope=replica`); `loss_scale` (1 if there is none); `sequences` and `tokens`,
        the number of rows and of tokens without padding; `stop`, the sum of all replicas' arguments
        `stop`. The argument `batch` is an element of a distributed dataset, `stop` an int32 0 or 1.
    """
    # TPUs and XLA need fixed shapes; on GPUs, skipping padding has not been benchmarked.
    skip_padding = not (devices.fixed_shapes or devices.has_gpus or loss_uses_padding)
    replica = _Replica(state, loss, options, devices, skip_padding)
    if devices.jit_compile and devices.replicas > 1:
        compiled = tf.function(replica.compute_gradients, jit_compile=True, autograph=False)
        replica.compute_gradients = compiled
    signature = [element_spec, tf.TensorSpec([], tf.int32)] if element_spec else None
    return compile_for_replicas(
        replica.train_step, devices.strategy, bool(devices.jit_compile), signature
    )


def compile_for_replicas(
    function: Callable[..., Mapping[str, tf.Tensor]],
    strategy: tf.distribute.Strategy,
    jit_compile: bool,
    signature: Any = None,
) -> Any:
    """Compiles a function that runs on each replica and returns equal results on all of them.

    With several replicas, `jit_compile` has no effect, because XLA cannot compile communication:
    pass a function that compiles its computations itself.
    """
    jit_compile = jit_compile and strategy.num_replicas_in_sync == 1

    @tf.function(jit_compile=jit_compile, input_signature=signature, autograph=False)
    def step(*args: Any) -> dict[str, tf.Tensor]:
        results = strategy.run(function, args=args)
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in results.items()
        }

    # Not a warning, but several runs in one process, as in a grid search.
    vars(step)["_omit_frequent_tracing_warning"] = True
    return step


@dataclasses.dataclass(eq=False)
class _Replica:
    state: TrainState
    loss: Loss
    options: TrainingOptions
    devices: Devices
    skip_padding: bool

    def __post_init__(self) -> None:
        self.replicas = self.devices.replicas
        self.optimizer, self.loss_scale = self.state.optimizer, self.state.loss_scale
        self.variables = [variable.value for variable, _ in self.optimizer.slots()]
        # Variables that the loss does not depend on; set during tracing.
        self.has_no_gradient = [False] * len(self.variables)

    def train_step(self, batch: Batch, stop: tf.Tensor) -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        totals = self._sum(self._compute_totals(batch))
        learning_rate = tf.identity(self.optimizer.learning_rate)
        scale = tf.identity(self.loss_scale.value.value if self.loss_scale else 1.0)
        seed = self._make_seed(context.replica_id_in_sync_group)
        if self.options.gradient_accumulation_steps == 1:
            share, gradients = self.compute_gradients(batch, totals, fold_in(seed, 0), scale)
        elif self.loss.gathered is not None:
            share, cached = self._cache_gradients(batch, totals, seed)
            _, gradients = self._accumulate({**batch, **cached}, totals, seed, scale)
        else:
            share, gradients = self._accumulate(batch, totals, seed, scale)
        if self.options.gradient_clip_scope == "replica":
            # The mean loss over a replica's rows is its share times the number of replicas.
            local_gradients = [gradient * float(self.replicas) for gradient in gradients]
            gradients = self._sum(self.optimizer.clip(local_gradients)[0])
            norm = tf.linalg.global_norm(gradients)
        else:
            gradients, norm = self.optimizer.clip(self._sum(gradients))
        # Not `optimizer.apply`, which would clip each replica's gradients before the sum.
        context.merge_call(self._update, args=(gradients, learning_rate, norm))
        self.optimizer.iterations.assign_add(1)
        if self.loss_scale:
            self.loss_scale.update(tf.math.is_finite(norm))
        return {
            "loss": self._sum(share),
            "learning_rate": learning_rate,
            "gradient_norm": norm,
            "loss_scale": scale,
            "sequences": totals["sequences"],
            "tokens": totals["tokens"],
            # `tf.identity`, because all-reduce does not accept function inputs.
            "stop": self._sum(tf.identity(stop)),
        }

    def compute_gradients(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        """Returns the loss share of a micro-batch and its dense gradients."""
        with tf.GradientTape() as tape:
            outputs = self._forward(batch, seed)
            share = compute_share(self.loss, outputs, batch, totals)
            scaled_loss = share * scale
        gradients = tape.gradient(scaled_loss, self.variables)
        self.has_no_gradient = [gradient is None for gradient in gradients]
        # Embedding gradients are `IndexedSlices` with repeated rows, whose norm would be wrong.
        return share, [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient) / scale
            for variable, gradient in zip(self.variables, gradients, strict=True)
        ]

    def _forward(self, batch: Batch, seed: Any) -> Mapping[str, Any]:
        batch = with_token_positions(batch) if self.skip_padding else batch
        return self.state.model(batch, training=True, dropout_seed=seed)

    def _cache_gradients(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any
    ) -> tuple[Any, dict[str, Any]]:
        micro_batch = self._split(batch)

        def forward(index: Any) -> Mapping[str, Any]:
            return self._forward(micro_batch(index), fold_in(seed, index))

        outputs = map_batches(forward, self.options.gradient_accumulation_steps)
        return cache_gradients(self.loss, outputs, batch, totals)

    def _accumulate(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        count = self.options.gradient_accumulation_steps
        micro_batch = self._split(batch)

        def add(index: Any, loss: Any, sums: list[Any]) -> tuple[Any, Any, list[Any]]:
            share, gradients = self.compute_gradients(
                micro_batch(index), totals, fold_in(seed, index), scale
            )
            return index + 1, loss + share, [a + b for a, b in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(variable.shape, tf.float32) for variable in self.variables]
        _, share, gradients = tf.while_loop(
            lambda index, *_: index < count,
            add,
            (tf.constant(0), tf.constant(0.0), zeros),
            # Parallel iterations would need as much memory as the whole batch.
            parallel_iterations=1,
            maximum_iterations=count,
        )
        return share, gradients

    def _split(self, batch: Batch) -> Callable[[Any], dict[str, Any]]:
        count = self.options.gradient_accumulation_steps
        # [B, ..] -> [count, B / count, ..]; static shapes stay static, which TPUs need.
        stacked = {name: tf.stack(tf.split(value, count)) for name, value in batch.items()}
        return lambda index: {name: value[index] for name, value in stacked.items()}

    def _compute_totals(self, batch: Batch) -> dict[str, Any]:
        return {
            "sequences": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32),
            "tokens": tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32),
            **self.loss.totals(batch),
        }

    def _make_seed(self, replica_id: Any) -> Any:
        seed = self.options.random_seed
        if self.devices.jit_compile:
            # This key saves a third of XLA's compile time; XLA's masks differ anyway.
            key = tf.constant([seed, 0], tf.uint32)
        else:
            key = tf.constant([seed - 2**32 if seed >= 2**31 else seed, 0], tf.int32)
        return fold_in(fold_in(key, self.optimizer.iterations.value), replica_id)

    def _sum(self, values: Any) -> Any:
        if self.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(SUM, values)

    def _update(
        self, strategy: tf.distribute.Strategy, gradients: list[Any], rate: Any, norm: Any
    ) -> None:
        def update(variable: Any, gradient: Any, rate: Any, norm: Any) -> None:
            def apply_update() -> tf.Tensor:
                update_variable(self.optimizer, gradient, variable, rate)
                return tf.constant(True)

            if self.loss_scale is None:
                apply_update()
            else:
                # The update is skipped if a gradient is not finite.
                tf.cond(tf.math.is_finite(norm), apply_update, lambda: tf.constant(False))

        for variable, gradient, has_no_gradient in zip(
            self.variables, gradients, self.has_no_gradient, strict=True
        ):
            # As in the original, variables without a gradient are not decayed.
            if not has_no_gradient:
                strategy.extended.update(variable, update, args=(gradient, rate, norm), group=False)


def with_token_positions(batch: Batch) -> Batch:
    """Adds `token_positions`, int32 [tokens], to a batch: the encoder then skips padding.

    For texts of other kinds, whose mask is `<kind>/input_mask`, adds `<kind>/token_positions`.
    """
    positions = {}
    for name in [name for name in batch if name.endswith("input_mask")]:
        mask = tf.reshape(batch[name], [-1])
        # Keep one position even if this part of the batch is all padding.
        is_token = tf.logical_or(mask != 0, tf.range(tf.size(mask)) == 0)
        name = name.removesuffix("input_mask") + "token_positions"
        positions[name] = tf.cast(tf.where(is_token)[:, 0], tf.int32)
    return {**batch, **positions}


def update_variable(
    optimizer: AdamWeightDecay, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor
) -> None:
    """Does the same as `optimizer.update_step`, with the fused op if the optimizer is plain Adam.

    `gradient` must be dense and already clipped. Call this function in `strategy.extended.update`,
    where `variable` is the copy on one device.
    """
    slots = optimizer.plain_adam_slots(variable)
    if slots is None:
        optimizer.update_step(gradient, variable, learning_rate)
        return
    m, v = slots
    # The op computes 1 - beta_2 in float32 (0.000999987), whereas the original BERT code and Keras
    # use 0.001. To compensate, scale the learning rate and epsilon by the root of the ratio.
    one_minus_beta_2 = float(np.float32(1.0) - np.float32(optimizer.beta_2))
    scale = float(np.sqrt(one_minus_beta_2 / (1.0 - optimizer.beta_2)))
    decay = optimizer.decay_rate(variable)
    if decay:
        variable.assign_sub(variable * (learning_rate * decay))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=m.value.handle,
        v=v.value.handle,
        # Powers of 0 disable bias correction, as in the original.
        beta1_power=0.0,
        beta2_power=0.0,
        lr=learning_rate * scale,
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon * scale,
        grad=gradient,
    )
