"""Runs a fine-tuning task: reads, builds, restores, trains, evaluates, predicts, exports."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoints, registry, training
from bert_tf.checkpoints.run_folder import RunFolder, labels_file
from bert_tf.errors import UserError
from bert_tf.finetuning import output_dir, run_metadata, training_texts
from bert_tf.finetuning.distillation import open_teacher
from bert_tf.finetuning.engines import open_model
from bert_tf.finetuning.export import export_task, make_text_inputs
from bert_tf.finetuning.initialization import restore_weights
from bert_tf.finetuning.model_files import find_model_files, load_config_and_tokenizer
from bert_tf.finetuning.output_dir import Results
from bert_tf.finetuning.records import Splits
from bert_tf.finetuning.run_checks import check_resumed, give_labels, result_suffix
from bert_tf.finetuning.task import MakeTask, Task
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log
from bert_tf.training.curve import TrainingCurve
from bert_tf.training.evaluation import EvalCallback, Monitor


def run(make_task: MakeTask, options: FineTuningOptions) -> Results:
    """Implements `registry.run` for fine-tuning; checks everything before writing anything."""
    options.check()
    options = find_model_files(options)
    if not options.do_train:
        RunFolder.used_by(options).require_script(registry.script_of(type(options)))
    # Errors in configuration, devices and teacher appear before the data are read.
    task = make_task(options, *load_config_and_tokenizer(options))
    devices = training.open_devices(options)
    give_labels(task)
    teacher = open_teacher(make_task, task, devices)
    if not task.rows_are_independent and options.gradient_accumulation_steps > 1:
        raise UserError(
            "--gradient_accumulation_steps=1 is needed: the loss of a row depends on the whole "
            "batch, which micro-batches do not see"
        )
    monitor = Monitor(options.best_metric, task.metric_names, task.lower_is_better)
    if options.do_export and task.texts_per_row is None:
        make_text_inputs(options)  # fails now rather than after the training
    with training.explained_errors(devices.workers), output_dir.locked(options, devices.is_chief):
        splits = Splits(task, options.output_dir or "", devices, teacher)
        if options.num_runs > 1:
            return _run_with_several_seeds(task, devices, monitor, splits)
        return FineTuningRun(task, task.options, devices, monitor, splits).run()


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
        log.info("%s of %d, --random_seed=%d", name, options.num_runs, seed)
        results.append(FineTuningRun(task, run_options, devices, monitor, splits).run())
        # Free the model: the models of all runs might not fit in device memory.
        keras.backend.clear_session()
    if not devices.is_chief:
        return Results()
    scores = [monitor.score(result.metrics) for result in results]
    return output_dir.write_summary(folder.path, results, seeds, scores.index(max(scores)))


@dataclasses.dataclass
class FineTuningRun:
    """Training, evaluation, prediction and export with one seed, in one `output_dir`.

    Runs with different seeds have different `options`, but the same `splits`.
    """

    task: Task
    options: FineTuningOptions
    devices: training.Devices
    monitor: Monitor
    splits: Splits

    def __post_init__(self) -> None:
        self.output_dir = self.options.output_dir or ""
        self.folder = RunFolder(self.output_dir)
        # The checkpoint in `output_dir` that was restored.
        self.restored: str | None = None
        # Files (name -> text) to save next to new checkpoints.
        self.metadata_files: dict[str, str] = {}
        # The step of the model's weights, and the last step of the training.
        self.step = self.num_train_steps = 0
        self.evaluation: EvalCallback | None = None
        self._inference: dict[str, RowBatches] = {}

    def run(self) -> Results:
        """Trains, evaluates, predicts and exports, depending on the options."""
        task, options, devices = self.task, self.options, self.devices
        labeled_splits = ["train"] * options.do_train + ["eval"] * options.evaluates
        for split in [*labeled_splits, *[task.predict_split] * options.do_predict]:
            # Read every split first, so that invalid data raise errors before training.
            self.splits.examples(split)
        self._compare_splits()
        data_description = self.splits.digest("train")[1] if options.do_train else ""
        is_same_run = check_resumed(options, data_description)
        keras.utils.set_random_seed(options.random_seed)
        self.model = self._build_model()
        self.restored = restore_weights(self.model, options)
        if options.engine != "tensorflow" and not (self.restored or options.init_checkpoint):
            raise UserError(
                f"--engine={options.engine}: --output_dir={self.output_dir} has no checkpoint to "
                "export. Pass the folder of a training run, or --init_checkpoint"
            )
        if self.restored:
            self.step = checkpoints.step_of(self.restored)
            data_labels = labels_file(task.labels)
            self.folder.require_same(data_labels, "the labels of the data")
        if options.do_train:
            num_rows = task.epoch_size(self.splits.examples("train"))
            self.num_train_steps = self._count_train_steps(num_rows)
            resumes, labels = bool(self.restored), task.labels
            self.metadata_files = run_metadata.run_files(
                options, resumes, data_description, labels, **task.run_entries
            )
            self.evaluation = self._eval_callback(num_rows)
        if devices.is_chief:
            self.folder.create(output_dir.EVAL_RESULTS)
        devices.require_equal(self.step, "step to resume from", "--output_dir")
        devices.require_equal(self.num_train_steps, "number of steps", "the training data")
        devices.require_equal_options(options)
        digest = self.evaluation.digest if self.evaluation else 0
        devices.require_equal(digest, "checksum of evaluations.json", "--output_dir")

        evaluation = self.evaluation
        if options.do_train and self._has_steps_left():
            self._train()
        elif evaluation and is_same_run and evaluation.best and evaluation.is_due(self.step, True):
            # The run was killed after it wrote its last checkpoint, before evaluating it.
            evaluation.evaluate(self.step)
        if options.do_train:
            self._restore_best()
        results = self._evaluate_and_predict(self.step)
        if options.do_export and devices.is_chief:
            folder = os.path.join(self.output_dir, "export")
            results.files.append(export_task(task, self.model, options, folder))
        # This call is a barrier: the other workers wait until the chief has written its files.
        devices.from_chief(0)
        return results

    def _build_model(self) -> keras.Model:
        task, options = self.task, self.options
        # Zeros are faster than random weights, which the checkpoint would replace anyway.
        zero = bool(options.init_checkpoint)
        model = training.build_model(task.build_model, self.devices, options.recompute_layers, zero)
        training.freeze_layers(model, options.freeze_layers)
        if options.do_train:
            training.check_training(model, options, self.devices, task.texts_per_row)
        return model

    def _count_train_steps(self, num_rows: int) -> int:
        options = self.options
        steps = int(num_rows / options.train_batch_size * options.num_train_epochs)
        if steps < 1:
            batches = f"{num_rows} training examples in batches of {options.train_batch_size}"
            advice = "lower --train_batch_size or raise --num_train_epochs"
            raise UserError(f"{batches} do not make one training step: {advice}")
        return steps

    def _eval_callback(self, num_rows: int) -> EvalCallback | None:
        options = self.options
        interval = options.steps_between_evaluations(num_rows / options.train_batch_size)
        if not interval:
            return None
        return EvalCallback(
            compute_metrics=lambda: self._evaluate()[0],
            model=self.model,
            output_dir=self.output_dir,
            every=interval,
            monitor=self.monitor,
            patience=options.early_stopping_patience,
            initial_step=self.step,
            examples_key=self.splits.digest("eval")[0],
            extra_files=self.metadata_files,
            is_chief=self.devices.is_chief,
        )

    def _has_steps_left(self) -> bool:
        if self.step >= self.num_train_steps:
            reason = f"{self.restored} is already at step {self.step} of {self.num_train_steps}"
            advice = "Raise --num_train_epochs to continue, or choose another --output_dir"
            log.warning("Skipping training: %s. %s", reason, advice)
            return False
        if self.evaluation and self.evaluation.should_stop:
            log.warning("Skipping training: early stopping ended it at step %d", self.step)
            return False
        return True

    def _compare_splits(self) -> None:
        """Reports evaluation examples that this run, an earlier one or the teacher trained on."""
        hashes = RunFolder.used_by(self.options).text_hashes()
        if self.options.do_train:
            train_hashes = self.splits.hashes("train")
            hashes = np.union1d(hashes, train_hashes)
            if self.options.teacher:
                teacher_hashes = RunFolder(self.options.teacher).text_hashes()
                if len(teacher_hashes) and not np.isin(train_hashes, teacher_hashes).any():
                    log.info("--teacher was not trained on any of the training examples")
                hashes = np.union1d(hashes, teacher_hashes)
        if self.options.evaluates:
            trained = "the model or its teacher" if self.options.teacher else "the model"
            training_texts.report_shared_examples(self.splits.hashes("eval"), hashes, trained)
        self.train_hashes = hashes

    def _train(self) -> None:
        task, options, devices = self.task, self.options, self.devices
        num_train_steps, evaluation = self.num_train_steps, self.evaluation
        state = training.create_train_state(
            self.model,
            options,
            devices,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(num_train_steps * options.warmup_proportion),
            restore_from=self.restored,
        )
        if devices.is_chief:
            self.folder.write(self.metadata_files)
            self.folder.write_text_hashes(self.train_hashes)
        path, count, lengths = self.splits.records("train")
        features, step = self.splits.features("train"), self.step
        devices = training.for_training(
            devices, options, num_train_steps, lengths, task.texts_per_row or 1
        )
        row_loss, teacher = partial(task.loss, training=True), self.splits.teacher
        batches = training.training_batches(
            path, features, options, devices, num_records=count, skip_batches=step
        )
        train_step = training.make_train_step(
            state,
            training.mean_loss(teacher.mix_with(row_loss) if teacher else row_loss),
            options,
            devices,
            batches.element_spec,
            task.loss_uses_padding,
        )
        points = (lambda: evaluation.points) if evaluation else dict
        curve = TrainingCurve(self.output_dir, self.step, points, devices.is_chief)
        training.train(
            train_step, state, batches, options, devices, num_train_steps, curve, evaluation
        )
        self.step = state.step

    def _restore_best(self) -> None:
        # This call is a barrier: the chief may still be writing the best weights.
        self.devices.from_chief(0)
        if prefix := RunFolder(self.output_dir).best:  # `run.json` is new.
            checkpoints.restore(self.model, prefix)
            self.step = checkpoints.step_of(prefix)
            log.info("Restored the best weights, from step %d: %s", self.step, prefix)

    def _evaluate(self) -> tuple[dict[str, Any], Sequence[Any]]:
        examples = self.splits.examples("eval")
        predictions, losses = self._predict("eval")
        metrics = self.task.metrics(examples, predictions)
        if losses is not None:
            # As in the original, this is a mean over batches, even if the last one is short.
            size = self.options.batch_size("eval")
            batches = np.split(losses, range(size, len(losses), size))
            metrics["loss"] = np.float32(np.mean([batch.mean() for batch in batches]))
        return metrics, predictions

    def _predict(self, split: str) -> tuple[Sequence[Any], np.ndarray | None]:
        """Returns predictions, and the loss of each row if the records contain the targets."""
        task = self.task
        has_targets = bool(task.targets) and {*task.features(split)}.issuperset(task.targets)
        has_loss = split != "predict" and task.rows_are_independent and has_targets

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
                labels=task.labels,
                checkpoint=self.restored or self.options.init_checkpoint,
            )
            self._inference[split] = inference
        else:
            inference.refresh()
        outputs = inference.predict_records(path, count, split)
        return task.decode(self.splits.examples(split), outputs), outputs.get("loss")

    def _evaluate_and_predict(self, step: int) -> Results:
        task, options, is_chief = self.task, self.options, self.devices.is_chief
        folder, results = self.output_dir, Results()
        split = task.predict_split
        predictions: Any = None
        # If the model was trained on a different task, a suffix keeps that task's results.
        suffix = "" if options.do_train else result_suffix(options)
        if options.do_eval:
            metrics, predictions = self._evaluate()
            results.metrics = {**metrics, "global_step": step}
            names = output_dir.EVAL_FILES
            results.files += [output_dir.result_path(folder, name, suffix) for name in names]
            if is_chief:
                extra: dict[str, Any] = {}

                def report(folder: str) -> Iterable[str]:
                    entries, paths = task.report(self.splits.examples("eval"), predictions, folder)
                    extra.update(entries)
                    return paths

                results.files += output_dir.write_results(folder, suffix, report)
                count = len(predictions)
                main = {*task.metric_names[:2], "loss"}
                output_dir.write_metrics(folder, results.metrics, count, extra, suffix, main)
        if options.do_predict or (options.do_eval and split == "eval"):
            if predictions is None or split != "eval":
                predictions, _ = self._predict(split)
            if is_chief:
                write = partial(task.write_predictions, self.splits.examples(split), predictions)
                paths = output_dir.write_results(folder, suffix, write)
                results.files += paths
                log.info("Predictions for %d examples: %s", len(predictions), ", ".join(paths))
        return results
