"""The one runner of all fine-tuning tasks: read, records, train, evaluate, predict."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoint, files, training
from bert_tf.data import records
from bert_tf.data.parallel import map_in_order
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.progress import bar, log
from bert_tf.tasks import model_folder
from bert_tf.tasks.base import Task
from bert_tf.tasks.engine import Engine, Trainer
from bert_tf.tasks.results import EVAL_FILES, Results, prepare_output_dir, write_metrics
from bert_tf.tasks.start import restore_weights


def run(task: Task, options: FineTuningOptions) -> Results:
    """Runs a task: everything is read and checked first, then the work begins.

    Raises:
        UserError: a checkpoint does not fit or the data are not right; nothing in `output_dir`
            has been changed then. Or a file cannot be written.
    """
    engine = Engine(options)
    with training.explained_errors(engine.devices.workers):
        return _run(task, options, engine)


def _run(task: Task, options: FineTuningOptions, engine: Engine) -> Results:
    keras.utils.set_random_seed(options.random_seed)
    model = engine.build_model(task.build_model, options.recompute_layers)
    if options.do_train:
        engine.check_training(model)
    runner = _Runner(task, options, engine, model)
    restored = restore_weights(
        model, runner.output_dir, options.init_checkpoint, options.do_train, options.resume
    )

    splits = ["train"] * options.do_train + [task.evaluation_split] * options.do_eval
    splits += ["predict"] * options.do_predict
    examples = {split: task.read_examples(split) for split in dict.fromkeys(splits)}
    global_step = checkpoint.step_of(restored) if restored else 0
    num_train_steps, trainer = 0, None
    if options.do_train:
        num_train_steps = _num_train_steps(len(examples["train"]), options)
        if global_step < num_train_steps:
            num_warmup_steps = int(num_train_steps * options.warmup_proportion)
            trainer = engine.make_trainer(model, num_train_steps, num_warmup_steps, restored)
        else:
            log.warning(
                "Skipping training: %s is at step %d already, and %g epochs are %d steps in all",
                restored,
                global_step,
                options.num_train_epochs,
                num_train_steps,
            )
    kept = {**task.assets(), **model_folder.contents(options)} if options.do_train else {}
    if engine.devices.is_chief:
        written = (*task.record_files.values(), *kept, *task.result_files)
        prepare_output_dir(runner.output_dir, written)
    # Nobody writes before everybody has read what was there.
    engine.require_same(global_step, "step that it goes on from", "--output_dir")
    engine.require_same(num_train_steps, "number of steps", "the training data")
    engine.require_same_options()

    results = Results()
    if engine.devices.is_chief:
        for name, text in kept.items():
            files.write_text(os.path.join(runner.output_dir, name), text)
    if trainer:
        runner.train(examples["train"], trainer)
        global_step = num_train_steps
    if "eval" in examples:
        runner.evaluate(examples["eval"], global_step, results)
    if "predict" in examples:
        with_scores = options.do_eval and task.evaluation_split == "predict"
        runner.predict(examples["predict"], global_step if with_scores else None, results)
    # Nobody leaves before the chief has written.
    engine.devices.from_chief(0)
    return results


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
        self, task: Task, options: FineTuningOptions, engine: Engine, model: keras.Model
    ) -> None:
        self.task = task
        self.options = options
        self.engine = engine
        self.is_chief = engine.devices.is_chief
        self.model = model
        self.output_dir = options.output_dir or ""

    def train(self, examples: Sequence[Any], trainer: Trainer) -> None:
        """Trains from the optimizer's step up to the last."""
        path, count = self._write_records(examples, "train")
        step = int(trainer.optimizer.iterations.numpy())
        batches = self.engine.training_dataset(path, self.task.features("train"), count, step)
        self.engine.train(self.model, trainer, training.mean_loss(self.task.loss), batches)

    def evaluate(self, examples: Sequence[Any], global_step: int, results: Results) -> None:
        """Evaluates and writes the figures."""
        found = self._run(examples, "eval", self.task.eval_outputs)
        losses = found["per_example_loss"]
        size = self.options.batch_size("eval")
        batches = np.split(losses, range(size, len(losses), size))
        metrics = {
            **self.task.metrics(examples, found),
            # The mean over batches, in which a short last one counts in full: Estimator's figure.
            "loss": np.float32(np.mean([batch.mean() for batch in batches])),
        }
        self._write_metrics(metrics, len(examples), global_step, results)

    def predict(self, examples: Sequence[Any], scored_at: int | None, results: Results) -> None:
        """Predicts and writes the task's files.

        Args:
            examples: to predict.
            scored_at: step that the model is at, where the predictions are evaluated too.
            results: gets what was found and written.
        """
        found = self._run(examples, "predict", self.task.predict_outputs)
        if not self.is_chief:
            return
        predictions = self.task.decode(examples, found)
        written = list(self.task.write_predictions(examples, predictions, self.output_dir))
        log.info("Prediction of %d examples: %s", len(examples), ", ".join(written))
        if scored_at is not None:
            metrics = self.task.metrics(examples, predictions)
            self._write_metrics(metrics, len(examples), scored_at, results)
        results.files += written

    def _write_metrics(
        self, metrics: Mapping[str, Any], examples: int, global_step: int, results: Results
    ) -> None:
        results.metrics = {**metrics, "global_step": global_step}
        if self.is_chief:
            write_metrics(self.output_dir, results.metrics, global_step, examples)
        results.files += [os.path.join(self.output_dir, name) for name in EVAL_FILES]

    def _write_records(self, examples: Sequence[Any], split: str) -> tuple[str, int]:
        """Path and number of the records; the chief writes them, the others wait."""
        path = os.path.join(self.output_dir, self.task.record_files[split])
        count = 0
        if self.is_chief:
            batches = self._features(examples, split)
            count = records.write_records(path, self.task.features(split), batches)
        count = self.engine.devices.from_chief(count)
        if not files.exists(path):
            raise UserError(
                f"This worker does not see {path}, which worker 0 has written: --output_dir must "
                "be in a file system that all workers share"
            )
        return path, count

    def _features(self, examples: Sequence[Any], split: str) -> Iterator[Mapping[str, np.ndarray]]:
        def convert(part: Sequence[Any]) -> tuple[int, Mapping[str, np.ndarray]]:
            return len(part), self.task.to_features(part, split)

        portions = list(self.task.portions(examples, split))
        converted = map_in_order(convert, portions)
        total = sum(map(len, portions))
        with contextlib.closing(converted), bar(total, f"{split} features") as shown:
            for count, rows in converted:
                yield rows
                shown.update(count)

    def _run(
        self, examples: Sequence[Any], split: str, outputs_fn: Callable
    ) -> dict[str, np.ndarray]:
        path, count = self._write_records(examples, split)
        return self.engine.run_batches(
            self.model,
            outputs_fn,
            path,
            self.task.features(split),
            num_examples=count,
            batch_size=self.options.batch_size(split),
            what=split,
        )
