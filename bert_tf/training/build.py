"""Builds the model, the optimizer and the training data on a run's devices."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.data.features import Feature
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.optimization import create_optimizer
from bert_tf.options import TrainingOptions
from bert_tf.training.devices import Devices
from bert_tf.training.memory import log_memory
from bert_tf.training.precision import LossScale
from bert_tf.training.step import TrainState


def build_model(
    build: Callable[..., keras.Model],
    devices: Devices,
    recompute_layers: bool = False,
    zero_init_encoder: bool = False,
) -> keras.Model:
    """Builds a model on the devices and logs its size.

    `build` receives keyword arguments of `ConfiguredModel`, and must pass them on.
    `zero_init_encoder` skips random initialization; set it if weights are loaded next.
    """
    with devices.scope():
        model = build(
            recompute_layers=recompute_layers,
            zero_init_encoder=zero_init_encoder,
            # As in the original BERT code: on TPUs, a one-hot product is faster than a lookup.
            use_one_hot_embeddings=devices.kind == "tpu",
        )
    tf32 = " (TF32 is off)" * (devices.has_tf32 and devices.precision == "float32")
    note(
        f"{type(model).__name__} with {model.count_params():,} parameters in {devices.precision}"
        f"{tf32} on {devices.description}. TensorFlow {tf.__version__}, Keras {keras.__version__}"
    )
    return model


def freeze_layers(model: Any, count: int) -> None:
    """Freezes the embeddings and the first `count` encoder layers; 0 freezes nothing."""
    layers = model.bert.encoder.transformer_layers
    if count:
        model.bert.embeddings.trainable = False
        for layer in layers[:count]:
            layer.trainable = False
        if count > len(layers) or not model.trainable_weights:
            existing = counted(len(layers), "layer")
            raise UserError(f"--freeze_layers={count} is too many for {existing}")
        note(f"Froze the embeddings and the first {counted(count, 'layer', of=len(layers))}")


def check_training(model: Any, options: Any, devices: Devices, texts_per_row: int = 1) -> None:
    """Checks batch size and learning rate, and logs the estimated memory, see `log_memory`.

    Raises a UserError if the batch size is too small, or not a multiple of the number of devices
    where this is needed.
    """
    if options.learning_rate > 0.01 and options.optimizer == "adamw":
        warn(f"--learning_rate={options.learning_rate:g} exceeds 0.01; check the exponent")
    replicas, batch_size = devices.replicas, options.train_batch_size
    micro_batches = options.gradient_accumulation_steps
    clip_per_replica = options.gradient_clip_scope == "replica"
    has_static_shapes = devices.fixed_shapes or devices.needs_full_batches
    needs_equal_split = has_static_shapes or clip_per_replica or micro_batches > 1
    parts = replicas * micro_batches if needs_equal_split else 1
    if batch_size < replicas or batch_size % parts:
        split = f"{counted(replicas, 'device')} and --gradient_accumulation_steps={micro_batches}"
        raise UserError(f"--train_batch_size={batch_size} cannot be split for {split}")
    log_memory(model, options, devices, texts_per_row)


def create_train_state(
    model: keras.Model,
    options: TrainingOptions,
    devices: Devices,
    num_train_steps: int,
    num_warmup_steps: int,
) -> TrainState:
    """Creates the optimizer and, for float16, the loss scale."""
    with devices.strategy.scope():
        optimizer = create_optimizer(
            options.learning_rate,
            num_train_steps,
            num_warmup_steps,
            options.adam_bias_correction,
            options.optimizer,
        )
        optimizer.build(model.trainable_variables)
        loss_scale = LossScale() if devices.precision == "float16" else None
    steps = counted(num_train_steps, "step")
    note(f"{steps} in all, {num_warmup_steps} of them warm-up")
    return TrainState(model, optimizer, loss_scale)


def training_batches(
    paths: str | Sequence[str],
    features: Sequence[Feature],
    options: Any,
    devices: Devices,
    *,
    num_records: int | None,
    skip_batches: int,
) -> Any:
    """Returns an endless stream of shuffled batches, distributed across the devices.

    `num_records` is the size of the shuffle buffer, as in `read_dataset`; `skip_batches` the number
    of completed steps.
    """

    def read_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return read_dataset(
            paths,
            features,
            options.train_batch_size,
            shuffle_seed=options.random_seed,
            num_records=num_records,
            repeat=True,
            # This only makes shapes static, which they must not be without XLA (see
            # `make_train_step`): the stream repeats, so all batches are full anyway.
            drop_remainder=devices.needs_full_batches,
            group_by_length=options.length_grouping and not devices.fixed_shapes,
            skip_batches=skip_batches,
            context=context,
            trim_padding=not devices.fixed_shapes,
            length=devices.length,
        )

    return devices.strategy.distribute_datasets_from_function(read_batches)
