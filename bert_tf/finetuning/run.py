"""Runs a fine-tuning task: reads, builds, restores, trains, evaluates, predicts, exports."""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from bert_tf import training
from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.model import follow_labels
from bert_tf.checkpoints.run_folder import PLANNED_STEPS, RunFolder, labels_file
from bert_tf.data.features import texts_per_row
from bert_tf.data.input_pipeline import SHUFFLED_IN_MEMORY
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.distillation import open_teacher
from bert_tf.finetuning.engines import open_model
from bert_tf.finetuning.evaluation_report import write_report, write_summary_report
from bert_tf.finetuning.export import export_task
from bert_tf.finetuning.model_files import check_length, read_model_files
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.records import Splits, report_shared_examples
from bert_tf.finetuning.run_checks import check_resumed, give_schema, result_suffix
from bert_tf.finetuning.task import MakeTask, Task, Written
from bert_tf.inference.row_batches import RowBatches
from bert_tf.runs import output_dir
from bert_tf.runs.output_dir import Results
from bert_tf.runs.training_run import Plan, TrainingRecords, TrainingRun
from bert_tf.training.evaluation import Monitor


def run(make_task: MakeTask, options: FineTuningOptions) -> Results:
    """Implements `registry.run` for fine-tuning; each run first checks its own folder."""
    options.check()
    # Errors in configuration and devices appear before the data are read.
    options, config, tokenizer = read_model_files(options)
    task = make_task(options, config, tokenizer)
    devices = training.open_devices(options, one_process=bool(options.teacher))
    give_schema(task)
    for feature in task.features("train" if options.do_train else "predict"):
        # `read_model_files` checks --max_seq_length, but texts may have other lengths.
        if feature.per_token:
            check_length(feature.shape[-1], config, f"The length of {feature.name}")
    teacher = open_teacher(make_task, task, devices)
    is_gathered = "batch" in task.traits.loss_depends_on and options.do_train
    if is_gathered and devices.replicas > 1 and (devices.jit_compile or options.teacher):
        problem = "--teacher and --jit_compile=true need one device if the loss depends on"
        raise UserError(f"{problem} the whole batch")
    monitor = Monitor(options.best_metric, task.traits.monitors)
    lock = output_dir.locked(options.output_dir or "", devices.is_chief, options.do_train)
    with training.explained_errors(devices.workers), lock:
        splits = Splits(task, devices, teacher)
        if options.num_runs > 1:
            return _run_with_several_seeds(task, devices, monitor, splits)
        return FineTuningRun(task.options, devices, monitor, task, splits).run()


def _run_with_several_seeds(
    task: Task, devices: training.Devices, monitor: Monitor, splits: Splits
) -> Results:
    options = task.options
    folder = RunFolder(options.output_dir or "")
    results: list[Results] = []
    seeds = [(options.random_seed + index) % 2**32 for index in range(options.num_runs)]
    for run_folder, seed in zip(folder.subfolders(options.num_runs), seeds, strict=True):
        run_options = dataclasses.replace(
            options,
            num_runs=1,
            random_seed=seed,
            output_dir=run_folder.path,
            # An interrupted command may have stopped before later runs started.
            resume="auto" if options.resume == "must" and results else options.resume,
        )
        name = os.path.basename(run_folder.path)
        note(f"{name} of {options.num_runs}, --random_seed={seed}")
        results.append(FineTuningRun(run_options, devices, monitor, task, splits).run())
        # Free the model: the models of all runs might not fit in device memory.
        keras.backend.clear_session()
    if not devices.is_chief:
        return Results()
    scores = [monitor.score(result.metrics) for result in results]
    summary = output_dir.write_summary(folder.path, results, seeds, scores.index(max(scores)))
    if options.report:
        summary.files.append(write_summary_report(options, devices))
    return summary


@dataclasses.dataclass(eq=False)
class FineTuningRun(TrainingRun):
    """Training, evaluation, prediction and export with one seed, in one `output_dir`.

    Runs with different seeds have different `options`, but the same `splits`.
    """

    task: Task
    splits: Splits

    def __post_init__(self) -> None:
        super().__post_init__()
        self.texts_per_row = texts_per_row(self.task.features("predict"))
        self.loss_uses_padding = "padding" in self.task.traits.loss_depends_on
        self._inference: dict[str, RowBatches] = {}
        self._start = time.monotonic()

    def prepare(self) -> Plan:
        """Reads all splits and checks them against each other and against earlier runs."""
        task, options = self.task, self.options
        # Read every split first, so that invalid data raise errors before training.
        splits = [options.predict_split if x == "predict" else x for x in options.read_splits]
        self.splits.check(*splits)
        self._compare_splits()
        training_data = self.splits.digest("train")[1] if options.do_train else ""
        continues = check_resumed(options, training_data)
        if not options.do_train:
            return Plan()
        num_rows = task.epoch_size(self.splits.examples("train"))
        num_train_steps = self._count_train_steps(num_rows)
        eval_interval = options.steps_between_evaluations(num_rows / options.train_batch_size)
        return Plan(
            num_train_steps=num_train_steps,
            num_warmup_steps=int(num_train_steps * options.warmup_proportion),
            eval_interval=eval_interval,
            eval_examples=self.splits.digest("eval")[0] if eval_interval else "",
            continues=continues,
            metadata=run_metadata.run_files(
                options, training_data, task.schema, **{PLANNED_STEPS: num_train_steps}
            ),
        )

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Builds the task's model, and freezes layers."""
        model = self.task.build_model(**kwargs)
        training.freeze_layers(model, self.options.freeze_layers)
        return model

    def build_and_restore(self) -> tuple[keras.Model, str | None]:
        """Also checks the engine, and the labels of an earlier run."""
        model, restored = super().build_and_restore()
        options = self.options
        if options.engine != "tensorflow" and not (restored or options.init_checkpoint):
            raise UserError(f"--output_dir={self.folder} has no checkpoint to export")
        if restored:
            labels = labels_file(self.task.schema.labels)
            self.folder.require_same(labels, "the labels of the data")
        elif options.do_train and options.init_checkpoint:
            follow_labels(model, find_source(options.init_checkpoint), self.task.schema.labels)
        return model, restored

    def training_records(self) -> TrainingRecords:
        """Writes hashes of the training texts; writes or reuses records of the training set."""
        if self.devices.is_chief:
            self.folder.write_text_hashes(self.train_hashes)
        path, count, lengths = self.splits.records("train")
        shuffle_buffer = count if files.size(path) <= SHUFFLED_IN_MEMORY else None
        return TrainingRecords(path, self.splits.features("train"), shuffle_buffer, lengths)

    def loss(self) -> training.Loss:
        """Returns the mean loss of the rows, mixed with that of the teacher if there is one."""
        row_loss, teacher = partial(self.task.loss, training=True), self.splits.teacher
        row_loss = teacher.mix_with(row_loss) if teacher else row_loss
        if "batch" not in self.task.traits.loss_depends_on:
            return training.mean_loss(row_loss)
        # Features per token differ in length between devices.
        features = self.splits.features("train")
        return training.mean_loss(row_loss, tuple(f.name for f in features if not f.per_token))

    def _count_train_steps(self, num_rows: int) -> int:
        options = self.options
        steps = int(num_rows / options.train_batch_size * options.num_train_epochs)
        if steps < 1:
            rows = f"--num_train_epochs={options.num_train_epochs} of {num_rows} examples"
            size = f"--train_batch_size={options.train_batch_size}"
            raise UserError(f"{rows} are less than one step of {size}")
        return steps

    def _compare_splits(self) -> None:
        hashes = RunFolder.used_by(self.options).text_hashes()
        if self.options.do_train:
            hashes = np.union1d(hashes, self.splits.hashes("train"))
            if self.options.teacher:
                hashes = np.union1d(hashes, RunFolder(self.options.teacher).text_hashes())
        if self.options.evaluates:
            trained = "the model or its teacher" if self.options.teacher else "the model"
            report_shared_examples(self.splits.hashes("eval"), hashes, trained)
        self.train_hashes = hashes

    def compute_metrics(self) -> Mapping[str, Any]:
        """Evaluates the model on the dev set."""
        return self._evaluate()[0]

    def _evaluate(self) -> tuple[dict[str, Any], Sequence[Any], np.ndarray | None]:
        """Returns metrics, predictions, and the loss of each row if it is known."""
        examples = self.splits.examples("eval")
        predictions, losses = self._predict("eval")
        metrics = self.task.metrics(examples, predictions)
        if losses is not None:
            # As in the original, this is a mean over batches, even if the last one is short.
            size = self.options.batch_size("eval")
            batches = np.split(losses, range(size, len(losses), size))
            metrics["loss"] = np.float32(np.mean([batch.mean() for batch in batches]))
        return metrics, predictions, losses

    def _predict(self, split: str) -> tuple[Sequence[Any], np.ndarray | None]:
        """Returns predictions, and the loss of each row if the records have all it needs."""
        task = self.task
        has_targets = {*task.features(split)}.issuperset(task.features("train"))
        has_loss = has_targets and split != "predict" and "batch" not in task.traits.loss_depends_on

        def fetch(outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
            loss = {"loss": task.loss(outputs, batch, training=False)} if has_loss else {}
            return {**task.fetch(outputs, batch), **loss}

        path, count, lengths = self.splits.records(split)
        inference = self._inference.get(split)
        if inference is None:
            folder, size = RunFolder.used_by(self.options), self.options.batch_size(split)
            inference = open_model(
                folder,
                lambda devices: self.model,
                fetch,
                task.features(split),
                self.options,
                size,
                devices=self.devices,
                num_rows=count,
                lengths=lengths,
                schema=task.schema,
                checkpoint=self.restored or self.options.init_checkpoint,
            )
            self._inference[split] = inference
        else:
            inference.refresh()
        outputs = inference.predict_records(path, count, split)
        return task.decode(self.splits.examples(split), outputs), outputs.get("loss")

    def evaluate_and_predict(self) -> Results:
        """Evaluates, predicts and exports, as the options say."""
        task, options, is_chief = self.task, self.options, self.devices.is_chief
        folder, results = self.folder.path, Results()
        split, predictions = options.predict_split, None
        # If the model was trained on a different task, a suffix keeps that task's results.
        suffix = ""
        if not options.do_train:
            used = ["eval"] * options.do_eval + [split] * options.do_predict
            longest = max((self.splits.records(name)[2].longest for name in used), default=0)
            # An export truncates texts of any length without a word.
            longest = options.max_seq_length if options.do_export else longest
            suffix = result_suffix(options, longest * is_chief)
        if options.do_eval:
            before = time.monotonic()
            metrics, predictions, losses = self._evaluate()
            results.metrics = {**metrics, "global_step": self.step}
            names = output_dir.EVAL_FILES
            results.files += [output_dir.result_path(folder, name, suffix) for name in names]
            if is_chief:
                written = self._write("eval", predictions, suffix)
                results.files += written.paths
                main = {*[metric.name for metric in task.traits.monitors[:2]], "loss"}
                count, entries = len(predictions), written.entries
                others = suffix, main, task.traits.unit
                output_dir.write_metrics(folder, results.metrics, count, entries, *others)
                if options.report:
                    now = time.monotonic()
                    seconds = {"in all": now - self._start, "this evaluation": now - before}
                    examples = self.splits.examples("eval")
                    report = task.evaluation_report(examples, predictions, losses)
                    args = self, self.splits, report, results.metrics, suffix, seconds
                    results.files += write_report(*args)
        if options.do_predict and not (options.do_eval and split == "eval"):
            predictions, _ = self._predict(split)
            if is_chief:
                results.files += self._write(split, predictions, suffix).paths
        if options.do_export and is_chief:
            export_dir = os.path.join(folder, "export")
            results.files.append(export_task(task, self.model, options, export_dir))
        if is_chief and self.has_trained:
            output_dir.warn_about_old_results(folder, results.files)
        return results

    def _write(self, split: str, predictions: Sequence[Any], suffix: str) -> Written:
        examples = self.splits.examples(split)
        write = partial(self.task.write, split, examples, predictions)
        written = output_dir.write_results(self.folder.path, suffix, write)
        for path in written.paths:
            if path.endswith(".png"):
                note(f"Plot: {path}")
        if split == self.options.predict_split:
            paths = ", ".join(written.paths)
            note(f"Predictions for {counted(len(predictions), 'example')}: {paths}")
        return written
