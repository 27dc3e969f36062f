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
from bert_tf.progress import Scalars, counted, log
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
    for note in options.tpu_notes():
        log.warning("%s", note)
    training.use_float32()
    keras.utils.set_random_seed(options.random_seed)
    strategy = training.choose_strategy()
    with strategy.scope():
        model = task.build_model()
    log.info("%s", training.describe_device(model))
    restored = restore_weights(
        model, options.output_dir or "", options.init_checkpoint, options.do_train
    )

    splits = {"train": options.do_train, "eval": options.do_eval, "predict": options.do_predict}
    examples = {split: task.read_examples(split) for split, wanted in splits.items() if wanted}
    runner = _Runner(task, options, strategy, model)
    global_step = checkpoint.step_of(restored) if restored else 0
    num_train_steps, optimizer = 0, None
    if options.do_train:
        num_train_steps = _num_train_steps(len(examples["train"]), options)
        if global_step < num_train_steps:
            optimizer = runner.make_optimizer(num_train_steps, restored)
        else:
            log.warning(
                "Skipping training: %s is at step %d already, and %g epochs are %d steps in all",
                restored,
                global_step,
                options.num_train_epochs,
                num_train_steps,
            )
    _prepare_output_dir(runner.output_dir)

    results = Results()
    if optimizer:
        runner.train(examples["train"], optimizer, num_train_steps)
        global_step = num_train_steps
    if options.do_eval:
        results.metrics = runner.evaluate(examples["eval"], global_step)
        results.files.append(os.path.join(runner.output_dir, EVAL_RESULTS))
    if options.do_predict:
        results.files += runner.predict(examples["predict"])
    return results


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


class _Runner:
    """The steps of a run over one model."""

    def __init__(
        self,
        task: Task,
        options: FineTuningOptions,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
    ) -> None:
        self.task = task
        self.options = options
        self.strategy = strategy
        self.model = model
        self.output_dir = options.output_dir or ""

    def make_optimizer(self, num_train_steps: int, restored: str | None) -> AdamWeightDecay:
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
        if restored and not checkpoint.restore_optimizer(optimizer, restored):
            log.warning("%s lacks Adam slots: their moments start from zero", restored)
        log.info(
            "Training: batches of %d, %d steps in all, %d of them warm-up",
            options.train_batch_size,
            num_train_steps,
            num_warmup_steps,
        )
        return optimizer

    def train(
        self, examples: Sequence[Any], optimizer: AdamWeightDecay, num_train_steps: int
    ) -> None:
        """Trains from the optimizer's step up to `num_train_steps`."""
        options = self.options
        path, count = self._write_records(examples, "train")
        dataset = records.read_dataset(
            path,
            self.task.features("train"),
            options.train_batch_size,
            shuffle_seed=options.random_seed,
            num_records=count,
            repeat=True,
            drop_remainder=True,
        )
        training.train(
            self.model,
            optimizer,
            lambda outputs, batch: tf.reduce_mean(self.task.loss(outputs, batch)),
            dataset.skip(int(optimizer.iterations.numpy())),
            strategy=self.strategy,
            output_dir=self.output_dir,
            num_train_steps=num_train_steps,
            save_checkpoints_steps=options.save_checkpoints_steps,
            batch_size=options.train_batch_size,
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
        files.write_text(os.path.join(self.output_dir, EVAL_RESULTS), "\n".join(lines) + "\n")
        with contextlib.closing(Scalars(os.path.join(self.output_dir, EVAL_FOLDER))) as scalars:
            curves = {key: float(value) for key, value in metrics.items() if key != "global_step"}
            scalars.write(global_step, curves)
        log.info("Evaluation of %d examples: %s", len(examples), ", ".join(lines))
        return metrics

    def predict(self, examples: Sequence[Any]) -> list[str]:
        """Predicts and writes the task's files.

        Returns:
            Their paths.
        """
        size = self.options.predict_batch_size
        batches = self._run(examples, "predict", size, self.task.predict_outputs)
        written = list(self.task.write_predictions(examples, _joined(batches), self.output_dir))
        log.info("Prediction of %d examples: %s", len(examples), ", ".join(written))
        return written

    def _write_records(self, examples: Sequence[Any], split: str) -> tuple[str, int]:
        path = os.path.join(self.output_dir, RECORD_FILES[split])
        shown = counted(examples, len(examples), f"{split} features")
        rows = self.task.rows(shown, split)
        return path, records.write_records(path, self.task.features(split), rows)

    def _run(
        self, examples: Sequence[Any], split: str, batch_size: int, outputs_fn: Callable
    ) -> list[dict[str, np.ndarray]]:
        path, count = self._write_records(examples, split)
        dataset = records.read_dataset(path, self.task.features(split), batch_size)
        return training.run_batches(
            self.model,
            outputs_fn,
            dataset,
            strategy=self.strategy,
            num_examples=count,
            what=split,
        )


def _joined(batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
