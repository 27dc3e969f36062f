"""What every script does with devices: models and data on them, training, evaluation."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import backend, checkpoint, training
from bert_tf.data.input_pipeline import LENGTH_MULTIPLE, Replicas, read_dataset
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import Feature
from bert_tf.errors import UserError
from bert_tf.optimization import AdamWeightDecay, create_optimizer
from bert_tf.progress import log, speak_only_of_trouble


@dataclasses.dataclass(frozen=True)
class Trainer:
    """What a training changes beside the model, and how long it is.

    Attributes:
        optimizer: built on the variables that are trained.
        loss_scale: for float16.
        num_train_steps: in all.
    """

    optimizer: AdamWeightDecay
    loss_scale: training.LossScale | None
    num_train_steps: int


class Engine:
    """The devices of a run, and what the options say about working on them.

    To be made before anything is computed; with several processes it waits for all of them.

    Args:
        options: with the fields of `DeviceOptions`, and of `TrainingOptions` for a training.
        side_by_side: on a CPU each batch of a `row_runner` is computed by one thread, and there are
            as many at once as there are cores: for many batches; a single one takes longer.

    Raises:
        UserError: there are no such devices, or TensorFlow cannot compute here.
    """

    def __init__(self, options: Any, side_by_side: bool = False) -> None:
        backend.require_runtime(starts=True)
        doubts = options.training_notes() if getattr(options, "do_train", False) else []
        for note in options.notes() + doubts:
            log.warning("%s", note)
        self.options = options
        training.set_precision(options.precision)
        self.devices = devices = training.choose_devices(
            options.distribution_strategy,
            # Threads that share an operation wait for the slowest of them, again and again.
            one_thread=side_by_side,
            use_tpu=options.use_tpu,
            tpu_name=options.tpu_name,
            tpu_zone=options.tpu_zone,
            gcp_project=options.gcp_project,
        )
        self.strategy = devices.strategy
        fixed_shapes = devices.fixed_shapes or options.fixed_shapes
        compiled = {"auto": devices.has_gpus and fixed_shapes, "true": True, "false": False}
        # On a TPU everything is compiled anyhow, and must not be asked for it once more.
        self.jit_compile = not devices.fixed_shapes and compiled[options.jit_compile]
        # XLA compiles for each shape anew.
        self.fixed_shapes = fixed_shapes or self.jit_compile
        if self.fixed_shapes and getattr(options, "length_grouping", False):
            log.warning("--length_grouping: without effect where every batch is padded in full")
        self.batches_at_once = training.BATCHES_AT_ONCE
        if devices.one_thread:
            self.batches_at_once = max(num_cores(), training.BATCHES_AT_ONCE)
        if not devices.is_chief:
            speak_only_of_trouble()

    def build_model(
        self,
        build: Callable[..., keras.Model],
        recompute_layers: bool = False,
        blank_encoder: bool = False,
    ) -> keras.Model:
        """A model on the devices, described to the user.

        Args:
            build: takes the keyword arguments of `ConfiguredModel`.
            recompute_layers: see `Encoder`.
            blank_encoder: a checkpoint follows, which always has the whole encoder.
        """
        with self.strategy.scope():
            model = build(
                recompute_layers=recompute_layers,
                blank_encoder=blank_encoder,
                # The original looks words up by a matrix product on TPUs, where that is faster.
                use_one_hot_embeddings=self.devices.kind == "tpu",
            )
        log.info(
            "%s with %s parameters in %s on %s. TensorFlow %s, Keras %s",
            type(model).__name__,
            f"{_num_parameters(model):,}",
            self.options.precision,
            self.devices.description,
            tf.__version__,
            keras.__version__,
        )
        return model

    def check_training(self, model: Any) -> None:
        """Refuses batches that cannot be split over the devices; says what a training needs.

        Raises:
            UserError: the batch is too small, or no multiple of the devices and pieces.
        """
        options, replicas = self.options, self.devices.replicas
        pieces, size = options.gradient_accumulation_steps, options.train_batch_size
        if size < replicas:
            raise UserError(
                f"--train_batch_size={size} is fewer than one example for each of {replicas} "
                "devices"
            )
        even = self.fixed_shapes or options.gradient_clip_scope == "replica"
        if (even or pieces > 1) and size % (replicas * pieces):
            raise UserError(
                f"--train_batch_size={size} must be a multiple of {replicas * pieces}, which is "
                f"{replicas} devices times {pieces} pieces (--gradient_accumulation_steps)"
            )
        rows = -(-size // replicas)
        needed = training.estimate_training_bytes(
            model.config,
            _num_parameters(model),
            rows,
            options.max_seq_length,
            precision=options.precision,
            accumulation_steps=pieces,
            recompute_layers=options.recompute_layers,
        )
        log.info(
            "Training: %s%s, about %.1f GB of memory%s (estimated)",
            f"{rows} of the {size} rows of a batch on each of {replicas} devices"
            if replicas > 1
            else f"batches of {size} rows",
            f", in {pieces} pieces" if pieces > 1 else "",
            max(needed / 1e9, 0.1),
            " on each" if replicas > 1 else "",
        )

    def make_trainer(
        self,
        model: keras.Model,
        num_train_steps: int,
        num_warmup_steps: int,
        restored: str | None,
        optimizer_name: str = "adamw",
    ) -> Trainer:
        """The optimizer of a whole training, with slots and step of the checkpoint it goes on from.

        Raises:
            UserError: the checkpoint's slots do not fit.
        """
        options = self.options
        with self.strategy.scope():
            optimizer = create_optimizer(
                options.learning_rate,
                num_train_steps,
                num_warmup_steps,
                options.adam_bias_correction,
                optimizer_name,
            )
            optimizer.build(model.trainable_variables)
            loss_scale = training.LossScale() if options.precision == "float16" else None
        if restored and not checkpoint.restore_optimizer(optimizer, restored):
            log.warning(
                "%s lacks Adam slots: their moments start from zero. To begin a new training from "
                "it, pass it as --init_checkpoint with an empty --output_dir",
                restored,
            )
        if restored and loss_scale:
            checkpoint.restore_extra(loss_scale.variables, restored)
        log.info("%d steps in all, %d of them warm-up", num_train_steps, num_warmup_steps)
        return Trainer(optimizer, loss_scale, num_train_steps)

    def train(
        self,
        model: keras.Model,
        trainer: Trainer,
        loss: training.Loss,
        batches: Any,
        observer: training.Observer | None = None,
        reads_padding: bool = False,
    ) -> None:
        """Trains from the optimizer's step up to the last.

        Args:
            model: that is trained.
            trainer: of `make_trainer`.
            loss: of a batch.
            batches: of `training_dataset`.
            observer: see `training.train`.
            reads_padding: whether the loss depends on what the model says of padding.
        """
        options = self.options
        step_options = training.StepOptions(
            seed=options.random_seed,
            jit_compile=self.jit_compile,
            # Not measured on GPUs; on TPUs shapes are fixed.
            skip_padding=not (self.fixed_shapes or self.devices.has_gpus or reads_padding),
            accumulation_steps=options.gradient_accumulation_steps,
            clip_per_replica=options.gradient_clip_scope == "replica",
        )
        step = training.make_train_step(
            model,
            trainer.optimizer,
            loss,
            self.strategy,
            step_options,
            trainer.loss_scale,
            batches.element_spec,
        )
        loop_options = training.LoopOptions(
            output_dir=options.output_dir,
            num_train_steps=trainer.num_train_steps,
            save_checkpoints_steps=options.save_checkpoints_steps,
            profile_steps=options.profiled_steps(),
            is_chief=self.devices.is_chief,
            workers=self.devices.workers,
        )
        training.train(
            step, model, trainer.optimizer, batches, loop_options, trainer.loss_scale, observer
        )

    def training_dataset(
        self, paths: str | Sequence[str], features: Sequence[Feature], num_records: int, step: int
    ) -> Any:
        """Shuffled batches without end.

        Args:
            paths: the records.
            features: their declaration.
            num_records: that are held in memory to be shuffled.
            step: of the training, to begin from.
        """
        options = self.options
        return self.dataset(
            paths,
            features,
            options.train_batch_size,
            shuffle_seed=options.random_seed,
            num_records=num_records,
            repeat=True,
            # All batches are full. That their shape is not known otherwise is wanted, see
            # `make_train_step`.
            drop_remainder=self.jit_compile or self.devices.fixed_shapes,
            group_by_length=options.length_grouping and not self.fixed_shapes,
            skip_batches=step,
            shard_files=True,
        )

    def dataset(
        self,
        paths: str | Sequence[str],
        features: Sequence[Feature],
        batch_size: int,
        **kwargs: Any,
    ) -> Any:
        """`read_dataset`, distributed over the devices; without padding where shapes may vary."""

        def of_process(context: tf.distribute.InputContext) -> tf.data.Dataset:
            count = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * count
            return read_dataset(
                paths,
                features,
                batch_size,
                replicas=Replicas(first, count, context.num_replicas_in_sync),
                cut_padding=not self.fixed_shapes,
                **kwargs,
            )

        return self.strategy.distribute_datasets_from_function(of_process)

    def row_runner(
        self,
        model: keras.Model,
        outputs_fn: Callable,
        features: Sequence[Feature],
        batch_size: int,
        grow: bool = True,
        compiles: bool = False,
    ) -> training.RowRunner:
        """Runs the model over rows in memory; see `RowRunner`.

        With `compiles`, XLA computes what is between the products where batches are side by side.
        """
        with self.strategy.scope():
            model = training.cast_once(model, self.options.precision)
        # In bfloat16 nothing is gained, and on GPUs it was not measured.
        compiles = compiles and self.devices.one_thread and self.options.precision == "float32"
        compiles = compiles and not self.jit_compile and tf.test.is_built_with_xla()
        with training.compiled_rows(model) if compiles else contextlib.nullcontext():
            return training.RowRunner(
                model,
                outputs_fn,
                features,
                strategy=self.strategy,
                batch_size=batch_size,
                grow=grow,
                fixed_length=self.options.max_seq_length if self.fixed_shapes else None,
                full_batches=self.jit_compile or self.devices.fixed_shapes,
                # A CPU computes any length equally well.
                length_multiple=LENGTH_MULTIPLE if self.devices.has_gpus else 1,
                jit_compile=self.jit_compile,
                batches_at_once=self.batches_at_once,
            )

    def batch_runner(
        self,
        model: keras.Model,
        outputs_fn: Callable,
        paths: str | Sequence[str],
        features: Sequence[Feature],
        *,
        num_examples: int,
        batch_size: int,
        what: str,
    ) -> Callable[[], dict[str, np.ndarray]]:
        """Gives a function for what `outputs_fn` gives for each record, in their order.

        It may be called as often as one likes while the model is trained. With more examples than
        there are records, they are taken again from the first on.
        """
        replicas = self.devices.replicas
        # Where shapes are fixed or rows are gathered, all batches are full, on all devices.
        full = self.fixed_shapes or replicas > 1
        dataset = self.dataset(
            paths,
            features,
            batch_size,
            repeat=True,
            take_records=num_examples,
            pad_to=-(-batch_size // replicas) * replicas if full else None,
            group_by_length=not self.fixed_shapes,
            row_numbers=True,
        )
        # Compiled once, unless weights are cast for it, which have to be cast anew.
        steps: list[Any] = []

        def run() -> dict[str, np.ndarray]:
            if not steps or self.options.precision != "float32":
                with self.strategy.scope():
                    current = training.cast_once(model, self.options.precision)
                steps[:] = [
                    training.make_inference_step(
                        current, outputs_fn, dataset.element_spec, self.strategy, self.jit_compile
                    )
                ]
            return training.run_batches(steps[0], dataset, num_examples=num_examples, what=what)

        return run


def _num_parameters(model: keras.Model) -> int:
    variables = checkpoint.named_variables(model).values()
    return sum(int(np.prod(variable.shape)) for variable in variables)
