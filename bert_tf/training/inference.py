"""A model over a whole set, once, in order: what evaluation and prediction are made of."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.input_pipeline import ROW_NUMBER
from bert_tf.progress import bar
from bert_tf.training.step import Batch


def run_batches(
    step: Callable[[Any], dict[str, tf.Tensor]], dataset: Any, *, num_examples: int, what: str
) -> dict[str, np.ndarray]:
    """Runs a model over a set once, without dropout.

    Args:
        step: of `make_inference_step`.
        dataset: distributed batches with `row_number`; rows may come in any order, and twice.
        num_examples: rows of the set.
        what: name of the progress bar.

    Returns:
        What the step gave for each row [num_examples, ..], in the order of the set. Dimensions
        beyond the first have to be the same in all batches.
    """
    results: dict[str, np.ndarray] = {}
    done = np.zeros(num_examples, bool)
    with bar(num_examples, what) as shown:
        for batch in dataset:
            outputs = {name: value.numpy() for name, value in step(batch).items()}
            rows = outputs.pop(ROW_NUMBER)
            for name, values in outputs.items():
                if name not in results:
                    results[name] = np.empty((num_examples, *values.shape[1:]), values.dtype)
                results[name][rows] = values
            # A batch that is filled up has its last row several times.
            shown.update(int((~done[np.unique(rows)]).sum()))
            done[rows] = True
    return results


def make_inference_step(
    model: keras.Model,
    outputs_fn: Callable[[Any, Batch], dict[str, Any]],
    element_spec: Any,
    strategy: tf.distribute.Strategy,
    jit_compile: bool = False,
) -> Any:
    """The compiled function: distributed batch -> outputs of all replicas' rows, in order.

    Where batches have a `row_number`, outputs have it, too.

    Args:
        model: takes a batch.
        outputs_fn: (outputs, batch) -> tensors [B, ..].
        element_spec: of the distributed data set; nothing else is ever compiled.
        strategy: where it runs.
        jit_compile: by XLA.
    """
    several = strategy.num_replicas_in_sync > 1

    def compute(batch: Batch) -> dict[str, Any]:
        numbers = {name: batch[name] for name in (ROW_NUMBER,) if name in batch}
        return {**outputs_fn(model(batch, training=False), batch), **numbers}

    if jit_compile and several:
        compute = tf.function(compute, jit_compile=True, autograph=False)

    def one_replica(batch: Batch) -> dict[str, Any]:
        outputs = compute(batch)
        if not several:
            return outputs
        gather = tf.distribute.get_replica_context().all_gather
        # Copies on this replica: what only passed through from the input cannot be gathered.
        return {name: gather(tf.identity(value), axis=0) for name, value in outputs.items()}

    @tf.function(
        input_signature=[element_spec], jit_compile=jit_compile and not several, autograph=False
    )
    def step(batch: Any) -> dict[str, tf.Tensor]:
        outputs = strategy.run(one_replica, args=(batch,))
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in outputs.items()
        }

    return step
