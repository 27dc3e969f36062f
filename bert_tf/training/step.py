"""One training step, on any number of replicas: loss, gradients, their sum, clipping, update."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.dropout import fold_in
from bert_tf.optimization import AdamWeightDecay
from bert_tf.training.precision import LossScale
from bert_tf.training.update import update_variable

Batch = Mapping[str, tf.Tensor]

SUM = tf.distribute.ReduceOp.SUM


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss of a batch that may lie on several replicas, and in several pieces on each.

    Each piece has its share of the loss, and the shares add up to it; so N replicas give what one
    gives. A share needs to know figures of the whole batch: the totals.

    Attributes:
        totals: batch -> scalars by name, of a replica's rows; they are summed over all replicas.
        share: (outputs, batch, totals of the whole batch) -> scalar.
    """

    totals: Callable[[Batch], dict[str, Any]]
    share: Callable[[Any, Batch, Mapping[str, Any]], Any]


def mean_loss(row_loss: Callable[[Any, Batch], Any]) -> Loss:
    """The mean over rows: (outputs, batch) -> [B] becomes a loss."""
    return Loss(
        totals=lambda batch: {},
        share=lambda outputs, batch, totals: (
            tf.reduce_sum(row_loss(outputs, batch)) / totals["sequences"]
        ),
    )


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """How a step is computed.

    Compilation and pieces do not change the result, seed and `clip_per_replica` do.

    Attributes:
        seed: of dropout.
        jit_compile: by XLA.
        skip_padding: nothing is computed for padding; not with `jit_compile`, for each number of
            tokens is a shape of its own.
        accumulation_steps: pieces that a replica's part of the batch is computed in, one after the
            other; must divide its rows, whose number must be known.
        clip_per_replica: each replica clips its own gradient, as on the original's TPUs, instead
            of the gradient of the batch being clipped.
    """

    seed: int = 0
    jit_compile: bool = False
    skip_padding: bool = False
    accumulation_steps: int = 1
    clip_per_replica: bool = False


def make_train_step(
    model: keras.Model,
    optimizer: AdamWeightDecay,
    loss: Loss,
    strategy: tf.distribute.Strategy,
    options: StepOptions,
    loss_scale: LossScale | None = None,
    element_spec: Any = None,
) -> Callable[[Any, Any], dict[str, tf.Tensor]]:
    """The compiled function that takes a batch and updates the model.

    Args:
        model: takes a batch, `training` and `dropout_seed`.
        optimizer: built on the variables that are trained.
        loss: of the batch.
        strategy: where it runs; model, optimizer and scale were made in its scope.
        options: see there.
        loss_scale: for float16.
        element_spec: of the batches, for a function that is traced once; by default it is traced
            for each shape that comes. A training that is not compiled by XLA and is to be
            repeatable bit for bit needs batches with a number of rows that is not known: where
            all shapes are, TensorFlow's memory optimizer (one of the graph optimizers, "Grappler")
            turns the sum of three gradients or more into additions to a variable, in the order in
            which the gradients happen to be ready.

    Returns:
        (batch, stop) -> figures, scalars that are the same in all replicas: `loss` of the batch,
        before the update; the `learning_rate` of the update; `gradient_norm` before clipping
        (with `clip_per_replica` after it); the `loss_scale` it was computed with, 1 without one;
        `sequences` and `tokens` of the batch, padding not counted; `stop`, the sum of all
        processes' stop flags. The batch is one of a distributed data set, `stop` an int32 scalar.
    """
    replica = _Replica(model, optimizer, loss, strategy, options, loss_scale)
    # XLA compiles for one device: with several, what each of them computes by itself.
    whole = options.jit_compile and strategy.num_replicas_in_sync == 1
    if options.jit_compile and not whole:
        replica.gradients = tf.function(replica.gradients, jit_compile=True, autograph=False)

    signature = [element_spec, tf.TensorSpec([], tf.int32)] if element_spec else None

    # Nothing here needs AutoGraph; short runs of a tiny model take a fifth less without it.
    @tf.function(jit_compile=whole, input_signature=signature, autograph=False)
    def step(batch: Any, stop: tf.Tensor) -> dict[str, tf.Tensor]:
        figures = strategy.run(replica.step, args=(batch, stop))
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in figures.items()
        }

    return step


class _Replica:
    """What each replica does in a step."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: AdamWeightDecay,
        loss: Loss,
        strategy: tf.distribute.Strategy,
        options: StepOptions,
        loss_scale: LossScale | None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.replicas = strategy.num_replicas_in_sync
        self.options = options
        self.loss_scale = loss_scale
        self.variables = [variable.value for variable, _ in optimizer.slots()]
        self.untouched = [False] * len(self.variables)

    def step(self, batch: Batch, stop: tf.Tensor) -> dict[str, tf.Tensor]:
        context = tf.distribute.get_replica_context()
        totals = self._sum(self._totals(batch))
        learning_rate = tf.identity(self.optimizer.learning_rate)
        scale = tf.identity(self.loss_scale.value.value if self.loss_scale else 1.0)
        seed = self._seed(context.replica_id_in_sync_group)
        share, gradients = self.gradients(batch, totals, seed, scale)
        if self.options.clip_per_replica:
            # A replica's own mean is over its own rows: so many times its share.
            own = [gradient * float(self.replicas) for gradient in gradients]
            gradients, _ = self.optimizer.clip(own)
            gradients = self._sum(gradients)
            norm = tf.linalg.global_norm(gradients)
        else:
            gradients, norm = self.optimizer.clip(self._sum(gradients))
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
            # A copy on this replica: what comes from outside cannot be summed.
            "stop": self._sum(tf.identity(stop)),
        }

    def gradients(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        """Share of the loss of this replica's rows, and its gradients, dense."""
        pieces = self.options.accumulation_steps
        if pieces == 1:
            return self._piece(batch, totals, fold_in(seed, 0), scale)
        split = {name: _split(value, pieces) for name, value in batch.items()}

        def add_piece(index: Any, share: Any, sums: list[Any]) -> tuple[Any, Any, list[Any]]:
            piece = {name: value[index] for name, value in split.items()}
            more, gradients = self._piece(piece, totals, fold_in(seed, index), scale)
            return index + 1, share + more, [a + b for a, b in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(variable.shape, tf.float32) for variable in self.variables]
        # One after the other: pieces side by side would need the memory of the whole.
        _, share, gradients = tf.while_loop(
            lambda index, *_: index < pieces,
            add_piece,
            (tf.constant(0), tf.constant(0.0), zeros),
            parallel_iterations=1,
            maximum_iterations=pieces,
        )
        return share, gradients

    def _piece(
        self, batch: Batch, totals: Mapping[str, Any], seed: Any, scale: Any
    ) -> tuple[Any, list[Any]]:
        if self.options.skip_padding:
            batch = with_token_positions(batch)
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_seed=seed)
            share = self.loss.share(outputs, batch, totals)
            scaled = share * scale
        gradients = tape.gradient(scaled, self.variables)
        self.untouched = [gradient is None for gradient in gradients]
        # Gradients of look-ups come as slices that are not summed up yet.
        return share, [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient) / scale
            for variable, gradient in zip(self.variables, gradients, strict=True)
        ]

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
            # What the loss does not depend on is not changed, by weight decay neither.
            if not untouched:
                strategy.extended.update(variable, update, args=(gradient, rate, norm), group=False)


def with_token_positions(batch: Batch) -> Batch:
    """A batch with `token_positions`, for the encoder to compute nothing for padding."""
    mask = tf.reshape(batch["input_mask"], [-1])
    # A batch that is all padding, for one of several devices say, still has a token.
    is_token = tf.logical_or(mask != 0, tf.range(tf.size(mask)) == 0)
    return {**batch, "token_positions": tf.cast(tf.where(is_token)[:, 0], tf.int32)}


def _split(value: tf.Tensor, pieces: int) -> tf.Tensor:
    """[B, ..] -> [pieces, B / pieces, ..]."""
    if value.shape.is_fully_defined():  # On TPUs it must stay so.
        sizes: Any = value.shape.as_list()
        return tf.reshape(value, [pieces, sizes[0] // pieces, *sizes[1:]])
    sizes = tf.shape(value)
    return tf.reshape(value, tf.concat([[pieces, sizes[0] // pieces], sizes[1:]], axis=0))
