"""A training step on any number of replicas: loss, gradients, their sum, clipping, update."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.dropout import fold_in
from bert_tf.optimization import AdamWeightDecay
from bert_tf.training.fused_adam import update_variable
from bert_tf.training.precision import LossScale

Batch = Mapping[str, tf.Tensor]

SUM = tf.distribute.ReduceOp.SUM


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss of a batch that is spread over replicas and micro-batches.

    Each micro-batch computes its share of the loss, and the shares add up, so that N replicas and
    any number of micro-batches equal one device even if their parts differ in size; a mean of means
    would not. A share depends on totals of the whole batch.

    Attributes:
        totals: batch -> scalars by name, of a replica's rows; they are summed over all replicas.
        share: (outputs, batch, totals of the whole batch) -> scalar.
    """

    totals: Callable[[Batch], dict[str, Any]]
    share: Callable[[Any, Batch, Mapping[str, Any]], Any]


def mean_loss(row_loss: Callable[[Any, Batch], Any]) -> Loss:
    """Returns the mean over rows of a loss (outputs, batch) -> [B]."""
    return Loss(
        totals=lambda batch: {},
        share=lambda outputs, batch, totals: (
            tf.reduce_sum(row_loss(outputs, batch)) / totals["sequences"]
        ),
    )


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """How to compute a step. Only `seed` and `clip_per_replica` change the result.

    Attributes:
        seed: seed of dropout.
        jit_compile: whether XLA compiles the step.
        skip_padding: compute nothing for padding; not under XLA, which would compile for each
            number of tokens.
        accumulation_steps: number of micro-batches; must divide a replica's static number of rows.
        clip_per_replica: clip each replica's gradient, as on the original's TPUs, instead of that
            of the batch.
    """

    seed: int = 0
    jit_compile: bool = False
    skip_padding: bool = False
    accumulation_steps: int = 1
    clip_per_replica: bool = False


@dataclasses.dataclass(eq=False)
class TrainState:
    """A model in training and its optimizer, built on the trained variables."""

    model: keras.Model
    optimizer: AdamWeightDecay
    loss_scale: LossScale | None = None

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return int(self.optimizer.iterations.numpy())

    @property
    def extra_variables(self) -> dict[str, keras.Variable]:
        """The variables by name that a checkpoint stores beside model and optimizer."""
        return self.loss_scale.variables if self.loss_scale else {}


def make_train_step(
    state: TrainState,
    loss: Loss,
    strategy: tf.distribute.Strategy,
    options: StepOptions,
    element_spec: Any = None,
) -> Callable[[Any, Any], dict[str, tf.Tensor]]:
    """Compiles the function that takes a batch and updates the model.

    `state` must be made in the scope of `strategy`. With `element_spec`, the specification of the
    batches, it is traced once, otherwise for each shape. For results that are repeatable bit for
    bit, the number of rows must not be static unless XLA compiles: with static shapes TensorFlow's
    memory optimizer (Grappler) turns sums of three or more gradients into additions in the order in
    which the gradients become ready, and no option turns only that off.

    Returns:
        (batch, stop) -> scalars that are equal in all replicas: `loss` of the batch before the
        update; the `learning_rate` of the update; `gradient_norm` before clipping (with
        `clip_per_replica` after it); `loss_scale`, 1 without one; `sequences` and `tokens` of the
        batch, without padding; `stop`, the sum of all processes' stop flags. The batch is an
        element of a distributed data set, `stop` an int32 scalar.
    """
    replica = _Replica(state, loss, strategy, options)
    if options.jit_compile and strategy.num_replicas_in_sync > 1:
        replica.gradients = tf.function(replica.gradients, jit_compile=True, autograph=False)
    signature = [element_spec, tf.TensorSpec([], tf.int32)] if element_spec else None
    return compile_for_replicas(replica.step, strategy, options.jit_compile, signature)


def compile_for_replicas(
    function: Callable[..., Mapping[str, tf.Tensor]],
    strategy: tf.distribute.Strategy,
    jit_compile: bool,
    signature: Any = None,
) -> Any:
    """Compiles a function that each replica runs, and whose results are equal in all of them.

    With several replicas, XLA can only compile parts without communication, which is up to
    `function`.
    """
    jit_compile = jit_compile and strategy.num_replicas_in_sync == 1

    @tf.function(jit_compile=jit_compile, input_signature=signature, autograph=False)
    def step(*args: Any) -> dict[str, tf.Tensor]:
        results = strategy.run(function, args=args)
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in results.items()
        }

    return step


@dataclasses.dataclass(eq=False)
class _Replica:
    """The part of a step that each replica computes."""

    state: TrainState
    loss: Loss
    strategy: tf.distribute.Strategy
    options: StepOptions

    def __post_init__(self) -> None:
        self.optimizer, self.loss_scale = self.state.optimizer, self.state.loss_scale
        self.replicas = self.strategy.num_replicas_in_sync
        self.variables = [variable.value for variable, _ in self.optimizer.slots()]
        # Variables that the loss does not depend on; known after tracing.
        self.untouched = [False] * len(self.variables)

    def step(self, batch: Batch, stop: tf.Tensor) -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        totals = self._sum(self._totals(batch))
        learning_rate = tf.identity(self.optimizer.learning_rate)
        scale = tf.identity(self.loss_scale.value.value if self.loss_scale else 1.0)
        seed = self._seed(context.replica_id_in_sync_group)
        if self.options.accumulation_steps == 1:
            share, gradients = self.gradients(batch, totals, fold_in(seed, 0), scale)
        else:
            share, gradients = self._accumulate(batch, totals, seed, scale)
        if self.options.clip_per_replica:
            # The mean over a replica's own rows is so many times its share.
            own = [gradient * float(self.replicas) for gradient in gradients]
            gradients = self._sum(self.optimizer.clip(own)[0])
            norm = tf.linalg.global_norm(gradients)
        else:
            gradients, norm = self.optimizer.clip(self._sum(gradients))
        # Not `optimizer.apply`: it would clip a replica's gradients before they are summed.
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
            # A copy on this replica, because inputs cannot be summed.
            "stop": self._sum(tf.identity(stop)),
        }

    def gradients(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        """Computes the share of the loss of a micro-batch and its dense gradients."""
        if self.options.skip_padding:
            batch = with_token_positions(batch)
        with tf.GradientTape() as tape:
            outputs = self.state.model(batch, training=True, dropout_seed=seed)
            share = self.loss.share(outputs, batch, totals)
            scaled = share * scale
        gradients = tape.gradient(scaled, self.variables)
        self.untouched = [gradient is None for gradient in gradients]
        # Gradients of look-ups are slices that are not summed yet, and have another norm.
        return share, [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient) / scale
            for variable, gradient in zip(self.variables, gradients, strict=True)
        ]

    def _accumulate(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        """Sums `gradients` over micro-batches."""
        count = self.options.accumulation_steps
        # [B, ..] -> [count, B / count, ..]; static shapes stay static, which TPUs need.
        split = {name: tf.stack(tf.split(value, count)) for name, value in batch.items()}

        def add(index: Any, share: Any, sums: list[Any]) -> tuple[Any, Any, list[Any]]:
            micro_batch = {name: value[index] for name, value in split.items()}
            more, gradients = self.gradients(micro_batch, totals, fold_in(seed, index), scale)
            return index + 1, share + more, [a + b for a, b in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(variable.shape, tf.float32) for variable in self.variables]
        _, share, gradients = tf.while_loop(
            lambda index, *_: index < count,
            add,
            (tf.constant(0), tf.constant(0.0), zeros),
            # Parallel iterations would need the memory of the whole batch.
            parallel_iterations=1,
            maximum_iterations=count,
        )
        return share, gradients

    def _totals(self, batch: Batch) -> dict[str, Any]:
        return {
            "sequences": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32),
            "tokens": tf.cast(tf.reduce_sum(batch["input_mask"]), tf.float32),
            **self.loss.totals(batch),
        }

    def _seed(self, replica: Any) -> Any:
        seed = self.options.seed
        words = tf.constant([seed - 2**32 if seed >= 2**31 else seed, 0], tf.int32)
        return fold_in(fold_in(words, self.optimizer.iterations.value), replica)

    def _sum(self, values: Any) -> Any:
        if self.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(SUM, values)

    def _update(
        self, strategy: tf.distribute.Strategy, gradients: list[Any], rate: Any, norm: Any
    ) -> None:
        def update(variable: Any, gradient: Any, rate: Any, norm: Any) -> None:
            if self.loss_scale is None:
                update_variable(self.optimizer, gradient, variable, rate)
                return

            def changed() -> tf.Tensor:
                update_variable(self.optimizer, gradient, variable, rate)
                return tf.constant(True)

            tf.cond(tf.math.is_finite(norm), changed, lambda: tf.constant(False))

        for variable, gradient, untouched in zip(
            self.variables, gradients, self.untouched, strict=True
        ):
            # As in the original, weight decay does not change such variables either.
            if not untouched:
                strategy.extended.update(variable, update, args=(gradient, rate, norm), group=False)


def with_token_positions(batch: Batch) -> Batch:
    """Adds `token_positions` to a batch, so that the encoder computes nothing for padding."""
    mask = tf.reshape(batch["input_mask"], [-1])
    # A part of a batch that is all padding must still have a token.
    is_token = tf.logical_or(mask != 0, tf.range(tf.size(mask)) == 0)
    return {**batch, "token_positions": tf.cast(tf.where(is_token)[:, 0], tf.int32)}
