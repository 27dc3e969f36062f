"""The one run of all fine-tuning tasks: read, build, restore, train, evaluate, predict, export."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoint, training
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.finetuning import label_map, output_dir, run_metadata
from bert_tf.finetuning.export import export_task, require_text_input
from bert_tf.finetuning.initialization import (
    find_model_files,
    load_config_and_tokenizer,
    restore_weights,
)
from bert_tf.finetuning.multi_seed import RUNS, run_names, write_summary
from bert_tf.finetuning.output_dir import EVAL_FILES, Results, prepare_output_dir, write_metrics
from bert_tf.finetuning.record_cache import MANIFEST, fingerprint
from bert_tf.finetuning.records import find_records, record_file
from bert_tf.finetuning.task import Task
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.curve import CURVE, CURVE_PLOT, TrainingCurve
from bert_tf.training.evaluation import BEST_FOLDER, EVALUATIONS, EvalCallback, Monitor

# Folder of exported models in `output_dir`.
EXPORT_FOLDER = "export"

MakeTask = Callable[[Any, BertConfig, FullTokenizer], Task]


def run(make_task: MakeTask, options: FineTuningOptions) -> Results:
    """Fine-tunes, evaluates, predicts and exports, as the options say.

    Everything is read and checked before anything is written.

    Args:
        make_task: makes the task from options, configuration and tokenizer.
        options: flags of the script.

    Returns:
        Metrics of the evaluation, and paths of the files that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are invalid; then nothing
            in `output_dir` has changed. Or a file cannot be written.
    """
    options.check()
    options = find_model_files(options)
    # The small files of the model come first; a data set may be large.
    task = make_task(options, *load_config_and_tokenizer(options))
    devices = training.open_devices(options)
    monitor = Monitor(options.best_metric, task.metric_names, task.lower_is_better)
    if options.do_export:
        require_text_input(options)
    with training.explained_errors(devices.workers):
        if devices.is_chief:
            output_dir.require_writable(options.output_dir or "")
        if options.num_runs == 1:
            return FineTuningRun(task, task.options, devices, monitor).run()
        return _run_with_several_seeds(task, devices, monitor)


def _run_with_several_seeds(task: Task, devices: training.Devices, monitor: Monitor) -> Results:
    """Trains in a folder for each seed, from the same examples and records."""
    options = task.options
    folder = options.output_dir or ""
    names = run_names(options.num_runs)
    if devices.is_chief:
        # An obstacle to the last run must be found before the first.
        prepare_output_dir(folder, [RUNS], names)
        for name in names:
            prepare_output_dir(os.path.join(folder, name), *_written(task))
    examples: dict[str, Sequence[Any]] = {}
    results: list[Results] = []
    seeds = [(options.random_seed + number) % 2**32 for number in range(options.num_runs)]
    for name, seed in zip(names, seeds, strict=True):
        options_of_run = dataclasses.replace(
            options,
            num_runs=1,
            random_seed=seed,
            output_dir=os.path.join(folder, name),
            # --resume=must asks for a checkpoint of any of the runs.
            resume="auto" if options.resume == "must" and results else options.resume,
        )
        log.info("%s of %d, --random_seed=%d", name, options.num_runs, seed)
        results.append(
            FineTuningRun(task, options_of_run, devices, monitor, examples, folder).run()
        )
        # Device memory does not hold the models of all runs.
        keras.backend.clear_session()
    if not devices.is_chief:
        return Results()
    scores = [monitor.score(found.metrics) for found in results]
    return write_summary(folder, results, seeds, scores.index(max(scores)))


class FineTuningRun:
    """One training with its evaluation and prediction.

    Args:
        task: the task.
        options: the task's options, with seed and folder of this run.
        devices: where to compute.
        monitor: the metric that decides which weights are best.
        examples: splits that were read already; shared by the runs of several seeds.
        records_dir: folder of the records; by default `output_dir`.
    """

    def __init__(
        self,
        task: Task,
        options: FineTuningOptions,
        devices: training.Devices,
        monitor: Monitor,
        examples: dict[str, Sequence[Any]] | None = None,
        records_dir: str | None = None,
    ) -> None:
        self.task, self.options, self.devices, self.monitor = task, options, devices, monitor
        self.output_dir = options.output_dir or ""
        self.records_dir = self.output_dir if records_dir is None else records_dir
        self.examples = {} if examples is None else examples
        self._records: dict[str, tuple[str, int]] = {}
        self._inference: dict[str, training.Inference] = {}

    def run(self) -> Results:
        """Does what the options say; see `run`."""
        task, options, devices = self.task, self.options, self.devices
        self._read_examples()
        keras.utils.set_random_seed(options.random_seed)
        self.model = training.build_model(
            task.build_model,
            devices,
            options.recompute_layers,
            zero_init_encoder=bool(options.init_checkpoint),
        )
        restored = restore_weights(
            self.model,
            self.output_dir,
            options.init_checkpoint,
            options.do_train,
            options.resume,
        )
        step = checkpoint.step_of(restored) if restored else 0
        if restored:
            label_map.require_same_file(task.labels, self.output_dir)
        training_plan = self._plan_training(restored, step) if options.do_train else None
        self._agree_and_prepare(step, training_plan)
        if training_plan:
            step = self._train(training_plan, step)
        results = self._evaluate_and_predict(step)
        if options.do_export and devices.is_chief:
            folder = os.path.join(self.output_dir, EXPORT_FOLDER)
            results.files.append(export_task(task, self.model, options, folder))
        # Barrier: wait for the chief's writes.
        devices.from_chief(0)
        return results
