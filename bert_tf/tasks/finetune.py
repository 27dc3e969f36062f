"""The one runner of all fine-tuning tasks: read, records, train, evaluate, predict."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import checkpoint, files, training
from bert_tf.data import records
from bert_tf.errors import UserError
from bert_tf.optimization import AdamWeightDecay, create_optimizer
from bert_tf.options import FineTuningOptions
from bert_tf.progress import Scalars, counted, log, speak_only_of_trouble
from bert_tf.tasks.base import RECORD_FILES, Task
from bert_tf.tasks.start import restore_weights

EVAL_RESULTS = "eval_results.txt"
# Where the original's evaluation writes its curves.
EVAL_FOLDER = "eval"


@dataclasses.dataclass
class Results:
    """What a run gave.

    Attributes:
        metrics: figures of the evaluation, as in `eval_results.txt`; empty without one.
        files: paths of the results that were written.
    """

    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: list[str] = dataclasses.field(default_factory=list)


def run(task: Task, options: FineTuningOptions) -> Results:
    """Runs a task: everything is read and checked first, then the work begins.

    Raises:
        UserError: a checkpoint does not fit or the data are not right; nothing in `output_dir`
            has been changed then. Or a file cannot be written.
    """
    for note in options.notes():
        log.warning("%s", note)
    training.set_precision(options.precision)
    devices = training.choose_devices(
        options.distribution_strategy,
        use_tpu=options.use_tpu,
        tpu_name=options.tpu_name,
        tpu_zone=options.tpu_zone,
        gcp_project=options.gcp_project,
    )
    if not devices.is_chief:
        speak_only_of_trouble()
    with training.explained_errors(devices.workers):
        return _run(task, options, devices)


def _run(task: Task, options: FineTuningOptions, devices: training.Devices) -> Results:
    keras.utils.set_random_seed(options.random_seed)
    _check_batch_sizes(options, devices)
    with devices.strategy.scope():
        model = task.build_model(
            recompute_layers=options.recompute_layers,
            # The original looks words up by a matrix product on TPUs, where that is faster.
            use_one_hot_embeddings=devices.kind == "tpu",
        )
    runner = _Runner(task, options, devices, model)
    runner.describe()
    restored = restore_weights(
        model, runner.output_dir, options.init_checkpoint, options.do_train, options.resume
    )

    splits = {"train": options.do_train, "eval": options.do_eval, "predict": options.do_predict}
    examples = {split: task.read_examples(split) for split, wanted in splits.items() if wanted}
    global_step = checkpoint.step_of(restored) if restored else 0
    num_train_steps, trainer = 0, None
    if options.do_train:
        num_train_steps = _num_train_steps(len(examples["train"]), options)
        if global_step < num_train_steps:
            trainer = runner.make_trainer(num_train_steps, restored)
        else:
            log.warning(
                "Skipping training: %s is at step %d already, and %g epochs are %d steps in all",
                restored,
                global_step,
                options.num_train_epochs,
                num_train_steps,
            )
    if devices.is_chief:
        _prepare_output_dir(runner.output_dir)
    # Nobody writes before everybody has read what was there.
    devices.from_chief(0)

    results = Results()
    if trainer:
        runner.train(examples["train"], trainer)
        global_step = num_train_steps
    if options.do_eval:
        results.metrics = runner.evaluate(examples["eval"], global_step)
        results.files.append(os.path.join(runner.output_dir, EVAL_RESULTS))
    if options.do_predict:
        results.files += runner.predict(examples["predict"])
    devices.from_chief(0)
    return results


def _check_batch_sizes(options: FineTuningOptions, devices: training.Devices) -> None:
    """Refuses batches that cannot be split over the devices."""
    replicas, pieces = devices.replicas, options.gradient_accumulation_steps
    size = options.train_batch_size
    if not options.do_train:
        return
    if size < replicas:
        raise UserError(
            f"--train_batch_size={size} is fewer than one example for each of {replicas} devices"
        )
    even = pieces > 1 or devices.fixed_shapes or options.gradient_clip_scope == "replica"
    if even and size % (replicas * pieces):
        raise UserError(
            f"--train_batch_size={size} must be a multiple of {replicas * pieces}, which is "
            f"{replicas} devices times {pieces} pieces (--gradient_accumulation_steps)"
        )


def _prepare_output_dir(output_dir: str) -> None:
    """Makes the folder, and sees now rather than after the training that it can be written to."""
    files.make_dirs(output_dir)
    curves = os.path.join(output_dir, EVAL_FOLDER)
    if files.exists(curves) and not files.is_dir(curves):
        raise UserError(f"{curves} is a file, in place of the folder for curves of evaluations")
    for name in (*RECORD_FILES.values(), EVAL_RESULTS):
        if files.is_dir(os.path.join(output_dir, name)):
            raise UserError(f"{os.path.join(output_dir, name)} is a folder, in place of a file")
    probe = os.path.join(output_dir, ".bert_tf")
    files.write_text(probe, "")
    files.remove(probe)


def _num_train_steps(num_examples: int, options: FineTuningOptions) -> int:
    steps = int(num_examples / options.train_batch_size * options.num_train_epochs)
    if steps < 1:
        raise UserError(
            f"{num_examples} training examples in batches of {options.train_batch_size} for "
            f"{options.num_train_epochs} epochs are not one training step: lower "
            "--train_batch_size or raise --num_train_epochs"
        )
    return steps


@dataclasses.dataclass(frozen=True)
class _Trainer:
    """What a training changes beside the model, and how long it is."""

    optimizer: AdamWeightDecay
    loss_scale: training.LossScale | None
    num_train_steps: int


class _Runner:
    """The steps of a run over one model."""

    def __init__(
        self,
        task: Task,
        options: FineTuningOptions,
        devices: training.Devices,
        model: keras.Model,
    ) -> None:
        self.task = task
        self.options = options
        self.devices = devices
        self.strategy = devices.strategy
        self.model = model
        self.output_dir = options.output_dir or ""
        self.jit_compile = devices.fixed_shapes or (
            devices.compiles if options.jit_compile == "auto" else options.jit_compile == "true"
        )

    def describe(self) -> None:
        """Says what runs, how large it is, on what, and what memory that needs."""
        options, replicas = self.options, self.devices.replicas
        parameters = sum(
            int(np.prod(variable.shape))
            for variable in checkpoint.named_variables(self.model).values()
        )
        log.info(
            "%s with %s parameters in %s on %s. TensorFlow %s, Keras %s",
            type(self.model).__name__,
            f"{parameters:,}",
            options.precision,
            self.devices.description,
            tf.__version__,
            keras.__version__,
        )
        if not options.do_train:
            return
        rows = -(-options.train_batch_size // replicas)
        needed = training.estimate_training_bytes(
            self.model.config,
            parameters,
            rows,
            options.max_seq_length,
            precision=options.precision,
            accumulation_steps=options.gradient_accumulation_steps,
            recompute_layers=options.recompute_layers,
        )
        log.info(
            "Training takes %d of the %d rows of a batch on each of %d device%s%s, and about "
            "%.1f GB of memory there (estimated)",
            rows,
            options.train_batch_size,
            replicas,
            "s" if replicas > 1 else "",
            f", in {options.gradient_accumulation_steps} pieces"
            if options.gradient_accumulation_steps > 1
            else "",
            needed / 1e9,
        )

    def make_trainer(self, num_train_steps: int, restored: str | None) -> _Trainer:
        """The optimizer of a whole training, with slots and step of the checkpoint it goes on from.

        Raises:
            UserError: the checkpoint's slots do not fit.
        """
        options = self.options
        num_warmup_steps = int(num_train_steps * options.warmup_proportion)
        with self.strategy.scope():
            optimizer = create_optimizer(
                options.learning_rate,
                num_train_steps,
                num_warmup_steps,
                options.adam_bias_correction,
            )
            optimizer.build(self.model.trainable_variables)
            loss_scale = training.LossScale() if options.precision == "float16" else None
        if restored and not checkpoint.restore_optimizer(optimizer, restored):
            log.warning("%s lacks Adam slots: their moments start from zero", restored)
        if restored and loss_scale:
            checkpoint.restore_extra(loss_scale.variables, restored)
        log.info(
            "Training: batches of %d, %d steps in all, %d of them warm-up",
            options.train_batch_size,
            num_train_steps,
            num_warmup_steps,
        )
        return _Trainer(optimizer, loss_scale, num_train_steps)

    def train(self, examples: Sequence[Any], trainer: _Trainer) -> None:
        """Trains from the optimizer's step up to the last."""
        options = self.options
        dataset = self._dataset(
            *self._write_records(examples, "train"),
            "train",
            options.train_batch_size,
            shuffle_seed=options.random_seed,
            repeat=True,
            drop_remainder=True,
            skip_batches=int(trainer.optimizer.iterations.numpy()),
        )
        step = training.make_train_step(
            self.model,
            trainer.optimizer,
            training.mean_loss(self.task.loss),
            self.strategy,
            training.StepOptions(
                seed=options.random_seed,
                jit_compile=self.jit_compile,
                accumulation_steps=options.gradient_accumulation_steps,
                clip_per_replica=options.gradient_clip_scope == "replica",
            ),
            trainer.loss_scale,
        )
        training.train(
            step,
            self.model,
            trainer.optimizer,
            dataset,
            training.LoopOptions(
                output_dir=self.output_dir,
                num_train_steps=trainer.num_train_steps,
                save_checkpoints_steps=options.save_checkpoints_steps,
                profile_steps=options.profiled_steps(),
                is_chief=self.devices.is_chief,
                workers=self.devices.workers,
            ),
            trainer.loss_scale,
        )

    def evaluate(self, examples: Sequence[Any], global_step: int) -> dict[str, Any]:
        """Evaluates and writes `eval_results.txt`, and the figures as curves."""
        batches = self._run(examples, "eval", self.options.eval_batch_size, self.task.eval_outputs)
        metrics = {
            **self.task.metrics(_joined(batches)),
            "global_step": global_step,
            # The mean over batches, in which a short last one counts in full: Estimator's figure.
            "loss": np.float32(np.mean([batch["per_example_loss"].mean() for batch in batches])),
        }
        # str and not a format: it gives the shortest digits that tell the float32 from others.
        lines = [f"{key} = {metrics[key]!s}" for key in sorted(metrics)]
        log.info("Evaluation of %d examples: %s", len(examples), ", ".join(lines))
        if not self.devices.is_chief:
            return metrics
        files.write_text(os.path.join(self.output_dir, EVAL_RESULTS), "\n".join(lines) + "\n")
        with contextlib.closing(Scalars(os.path.join(self.output_dir, EVAL_FOLDER))) as scalars:
            curves = {key: float(value) for key, value in metrics.items() if key != "global_step"}
            scalars.write(global_step, curves)
        return metrics

    def predict(self, examples: Sequence[Any]) -> list[str]:
        """Predicts and writes the task's files.

        Returns:
            Their paths.
        """
        size = self.options.predict_batch_size
        batches = self._run(examples, "predict", size, self.task.predict_outputs)
        if not self.devices.is_chief:
            return []
        written = list(self.task.write_predictions(examples, _joined(batches), self.output_dir))
        log.info("Prediction of %d examples: %s", len(examples), ", ".join(written))
        return written

    def _write_records(self, examples: Sequence[Any], split: str) -> tuple[str, int]:
        """Path and number of the records; the chief writes them, the others wait."""
        path = os.path.join(self.output_dir, RECORD_FILES[split])
        count = 0
        if self.devices.is_chief:
            shown = counted(examples, len(examples), f"{split} features")
            rows = self.task.rows(shown, split)
            count = records.write_records(path, self.task.features(split), rows)
        count = self.devices.from_chief(count)
        if not files.exists(path):
            raise UserError(
                f"This worker does not see {path}, which worker 0 has written: --output_dir must "
                "be in a file system that all workers share"
            )
        return path, count

    def _dataset(
        self, path: str, num_records: int, split: str, batch_size: int, **kwargs: Any
    ) -> Any:
        """Batches of records, distributed over the devices."""

        def of_process(context: tf.distribute.InputContext) -> tf.data.Dataset:
            count = context.num_replicas_in_sync // context.num_input_pipelines
            replicas = records.Replicas(
                context.input_pipeline_id * count, count, context.num_replicas_in_sync
            )
            return records.read_dataset(
                path,
                self.task.features(split),
                batch_size,
                num_records=num_records,
                replicas=replicas,
                **kwargs,
            )

        return self.strategy.distribute_datasets_from_function(of_process)

    def _run(
        self, examples: Sequence[Any], split: str, batch_size: int, outputs_fn: Callable
    ) -> list[dict[str, np.ndarray]]:
        path, count = self._write_records(examples, split)
        replicas = self.devices.replicas
        # Where shapes are fixed or rows are gathered, all batches are full, on all devices.
        full = self.jit_compile or replicas > 1
        pad_to = -(-batch_size // replicas) * replicas if full else None
        dataset = self._dataset(path, count, split, batch_size, pad_to=pad_to)
        return training.run_batches(
            self.model,
            outputs_fn,
            dataset,
            strategy=self.strategy,
            num_examples=count,
            batch_size=batch_size,
            what=split,
            jit_compile=self.jit_compile,
        )


def _joined(batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
