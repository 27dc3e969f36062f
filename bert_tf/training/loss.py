"""The loss of a batch that is split across replicas and micro-batches."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

Batch = Mapping[str, tf.Tensor]

# Prefix of the gradients by the model's outputs in a batch, see `cache_gradients`.
_CACHED = "cached_gradients/"


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss of a batch that is split across replicas and micro-batches.

    Each micro-batch computes its share of the loss, normalized by totals of the whole batch, and
    the shares add up to the loss of the batch. So any split gives the same loss as one device, even
    if the parts differ in size; a mean of the parts' means would not.

    Attributes:
        totals: batch of a replica -> dict of scalars, which are then summed over all replicas.
        share: (outputs, micro-batch, totals of the whole batch) -> scalar.
        gathered: if the loss of a row depends on other rows, the features that it reads: `share`
            then gets these features, and the outputs, of the whole batch. Otherwise None.
    """

    totals: Callable[[Batch], dict[str, Any]]
    share: Callable[[Any, Batch, Mapping[str, Any]], Any]
    gathered: tuple[str, ...] | None = None


def mean_loss(
    row_loss: Callable[[Any, Batch], Any], gathered: tuple[str, ...] | None = None
) -> Loss:
    """Returns a `Loss`: the mean over rows of `row_loss`, (outputs, batch) -> [B].

    If `row_loss` returns a different shape, tracing the loss raises a ValueError.
    """

    def share(outputs: Any, batch: Batch, totals: Mapping[str, Any]) -> Any:
        losses = tf.convert_to_tensor(row_loss(outputs, batch))
        if losses.shape.rank != 1:
            raise ValueError(f"The loss must have the shape [B]. Received: {losses.shape}")
        return tf.reduce_sum(losses) / totals["sequences"]

    return Loss(totals=lambda batch: {}, share=share, gathered=gathered)


def compute_share(
    loss: Loss, outputs: Mapping[str, Any], batch: Batch, totals: Mapping[str, Any]
) -> Any:
    """Computes the share of a replica, or of a micro-batch, in the loss of the batch.

    If the loss of a row depends on other rows, all replicas compute the loss of the whole batch,
    and return an equal share of it. For a micro-batch with gradients of `cache_gradients`, returns
    a number with these gradients instead.
    """
    if f"{_CACHED}{next(iter(outputs))}" in batch:
        # The chain rule: this has the cached gradients by the outputs.
        products = (tf.reduce_sum(x * batch[f"{_CACHED}{n}"]) for n, x in outputs.items())
        return tf.add_n([*products])
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1 or loss.gathered is None:
        return loss.share(outputs, batch, totals)
    everything = {name: gather(value) for name, value in outputs.items()}
    features = {name: gather(batch[name]) for name in loss.gathered}
    return loss.share(everything, features, totals) / float(replicas)


def gather(value: Any) -> Any:
    """Returns the rows of all replicas."""
    # The copy is for outputs that are inputs, which TensorFlow cannot gather.
    gathered = tf.distribute.get_replica_context().all_gather(tf.identity(value), axis=0)
    # Restores the static shape, which gathering loses.
    return tf.ensure_shape(gathered, [None, *value.shape[1:]])


def map_batches(forward: Callable[[Any], Mapping[str, Any]], count: int) -> dict[str, tf.Tensor]:
    """Returns the outputs of `count` micro-batches, one after the other; forward takes an index."""
    # The values of this call are not used, and therefore not computed.
    specs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in forward(tf.constant(0)).items()}
    # Parallel iterations would need as much memory as the whole batch.
    stacked = tf.map_fn(forward, tf.range(count), fn_output_signature=specs, parallel_iterations=1)
    return {name: tf.concat(tf.unstack(x, num=count), axis=0) for name, x in stacked.items()}


def cache_gradients(
    loss: Loss, outputs: Mapping[str, Any], batch: Batch, totals: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Returns the share of a replica's batch, and its gradients by the outputs, for this batch.

    This is GradCache (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup"). The outputs are those of all micro-batches, computed without gradients. Add the
    gradients to the batch: `compute_share` then continues them into the model, which computes the
    outputs again, one micro-batch at a time and with the same dropout.
    """
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        share = compute_share(loss, outputs, batch, totals)
    gradients = tape.gradient(share, outputs)
    return share, {f"{_CACHED}{name}": gradient for name, gradient in gradients.items()}
