"""The training loop, and the loop over batches of evaluation and prediction.

A loop of our own rather than `Model.fit`: it is the same few lines on one device and on many
(`Model.fit` fails under multi-worker strategies, keras issue 20585), it counts steps and not
epochs, as the original does, and it writes the original's checkpoints.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.errors import UserError
from bert_tf.optimization import AdamWeightDecay
from bert_tf.progress import Scalars, TrainingProgress, bar, log

# The original writes a point of its curves every so many steps.
SUMMARY_STEPS = 100

Batch = dict[str, tf.Tensor]


def use_float32() -> None:
    """Sets Keras to float32, whatever a `keras.json` in the user's home says.

    The setting is one of the whole process.

    Raises:
        UserError: Keras was imported with another backend than TensorFlow.
    """
    if keras.config.backend() != "tensorflow":
        raise UserError(
            "The training scripts run on Keras' TensorFlow backend, but Keras was started with "
            f"{keras.config.backend()}: start with KERAS_BACKEND=tensorflow"
        )
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def choose_strategy() -> tf.distribute.Strategy:
    """One device: the first GPU where there is one, else the CPU."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        # Otherwise TensorFlow takes all of the memory at once, other programs' share included.
        with contextlib.suppress(RuntimeError):  # a notebook has used the GPU already
            tf.config.experimental.set_memory_growth(gpu, True)
    return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")


def describe_device(model: keras.Model) -> str:
    """One line: what runs, how large it is, and on what."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "unknown")
        device = f"one GPU ({name}; {len(gpus)} found)"
    else:
        device = f"the CPU ({os.cpu_count()} cores)"
    parameters = sum(
        int(np.prod(variable.shape)) for variable in checkpoint.named_variables(model).values()
    )
    return (
        f"{type(model).__name__} with {parameters:,} parameters on {device}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    )


def train(
    model: keras.Model,
    optimizer: AdamWeightDecay,
    loss_fn: Callable[[Any, Batch], Any],
    dataset: tf.data.Dataset,
    *,
    strategy: tf.distribute.Strategy,
    output_dir: str,
    num_train_steps: int,
    save_checkpoints_steps: int,
    batch_size: int,
) -> None:
    """Trains up to a total number of steps, and writes checkpoints on the way.

    It starts from the step that the optimizer is at. As the original's, it writes
    `model.ckpt-<step>` at the first step, every `save_checkpoints_steps`, and at the last.

    Args:
        model: takes a batch and gives the outputs that `loss_fn` takes.
        optimizer: built on the model's variables.
        loss_fn: (outputs, batch) -> scalar loss.
        dataset: batches without end; begins with the batch of the first step to be done.
        strategy: where it runs; model and optimizer were made in its scope.
        output_dir: takes checkpoints and curves.
        num_train_steps: total, steps before this run included.
        save_checkpoints_steps: steps between checkpoints.
        batch_size: examples in a batch, for the progress bar.

    Raises:
        UserError: a checkpoint cannot be written, or the loss is not a number any more, which is
            looked at before a checkpoint is written.
    """
    step = int(optimizer.iterations.numpy())
    if step >= num_train_steps:
        return
    if checkpoint.latest(output_dir) is None:
        checkpoint.save(output_dir, model, optimizer)
    train_step = make_train_step(model, optimizer, loss_fn, strategy)
    progress = TrainingProgress(step, num_train_steps, batch_size)
    scalars = Scalars(output_dir)
    batches = iter(dataset)
    try:
        while step < num_train_steps:
            figures = train_step(next(batches))
            step += 1
            progress.update(step, figures["loss"], figures["learning_rate"])
            last = step == num_train_steps
            if last or step % SUMMARY_STEPS == 0:
                scalars.write(step, {name: float(value) for name, value in figures.items()})
            if last or step % save_checkpoints_steps == 0:
                _require_finite(figures, step, output_dir)
                checkpoint.save(output_dir, model, optimizer)
    except KeyboardInterrupt:
        # A step is one call into TensorFlow, so between two of them everything fits together.
        prefix = checkpoint.save(output_dir, model, optimizer)
        log.warning("Stopped; the same command goes on from %s", prefix)
        raise
    finally:
        progress.close()
        scalars.close()
    log.info(
        "Trained up to step %d in %.0f s, loss of the last batch %.4f. Checkpoint: %s",
        step,
        progress.seconds,
        float(figures["loss"]),
        checkpoint.latest(output_dir),
    )


def _require_finite(figures: dict[str, tf.Tensor], step: int, output_dir: str) -> None:
    loss = float(figures["loss"])
    if not np.isfinite(loss):
        raise UserError(
            f"The loss is {loss} at step {step}, with a learning rate of "
            f"{float(figures['learning_rate']):.2e}: lower --learning_rate. The newest checkpoint "
            f"is still {checkpoint.latest(output_dir)}"
        )


def make_train_step(
    model: keras.Model,
    optimizer: AdamWeightDecay,
    loss_fn: Callable[[Any, Batch], Any],
    strategy: tf.distribute.Strategy,
) -> Callable[[Batch], dict[str, tf.Tensor]]:
    """The compiled function that takes a batch and updates the model.

    It gives `loss`, of the batch and before the update, and the `learning_rate` of the update.

    Args:
        model: takes a batch.
        optimizer: built on the model's variables.
        loss_fn: (outputs, batch) -> scalar loss.
        strategy: where it runs.
    """
    variables = model.trainable_variables

    def one_replica(batch: Batch) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_fn(model(batch, training=True), batch)
        learning_rate = tf.identity(optimizer.learning_rate)
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
        return {"loss": loss, "learning_rate": learning_rate}

    @tf.function
    def step(batch: Batch) -> dict[str, tf.Tensor]:
        return strategy.run(one_replica, args=(batch,))

    return step


def run_batches(
    model: keras.Model,
    outputs_fn: Callable[[Any, Batch], dict[str, Any]],
    dataset: tf.data.Dataset,
    *,
    strategy: tf.distribute.Strategy,
    num_examples: int,
    what: str,
) -> list[dict[str, np.ndarray]]:
    """Runs a model over a set once, without dropout, in the order of the set.

    Args:
        model: takes a batch.
        outputs_fn: (outputs, batch) -> tensors [B, ..] to bring back.
        dataset: batches.
        strategy: where it runs.
        num_examples: for the progress bar.
        what: name of the bar.

    Returns:
        What `outputs_fn` gave for each batch, as arrays.
    """

    @tf.function
    def step(batch: Batch) -> dict[str, tf.Tensor]:
        return strategy.run(lambda b: outputs_fn(model(b, training=False), b), args=(batch,))

    # Without this a last batch of another size would be compiled anew.
    signature = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), dataset.element_spec
    )
    concrete = step.get_concrete_function(signature)
    results = []
    with bar(num_examples, what) as shown:
        for batch in dataset:
            results.append({name: value.numpy() for name, value in concrete(batch).items()})
            shown.update(len(next(iter(results[-1].values()))))
    return results
