"""The one way through all fine-tuning tasks: read, records, train, evaluate, predict."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from bert_tf import checkpoint, training
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log
from bert_tf.tasks import model_folder
from bert_tf.tasks.agreement import require_same, require_same_options
from bert_tf.tasks.base import Task
from bert_tf.tasks.engine import Engine, Trainer
from bert_tf.tasks.export import export_task, require_text_input
from bert_tf.tasks.record_cache import MANIFEST
from bert_tf.tasks.repeated import RUNS, run_names, write_summary
from bert_tf.tasks.results import Results, prepare_output_dir, reserved
from bert_tf.tasks.run_directory import check_resumed, describe_data
from bert_tf.tasks.runner import Runner
from bert_tf.tasks.start import restore_weights
from bert_tf.tasks.validation import (
    BEST_FOLDER,
    CURVE,
    CURVE_PICTURE,
    EVALUATIONS,
    Validation,
    best_figure,
    score_of,
)

# Folder of the SavedModels in `output_dir`.
EXPORT = "export"


def run(task: Task, options: FineTuningOptions) -> Results:
    """Runs a task: everything is read and checked first, then the work begins.

    Raises:
        UserError: a checkpoint does not fit or the data are not right; nothing in `output_dir`
            has been changed then. Or a file cannot be written.
    """
    engine = Engine(options)
    best_figure(options.best_metric, task.best_metrics)
    if options.do_export:
        require_text_input(options)
    devices = engine.devices
    with training.explained_errors(devices.workers), reserved(options, devices.is_chief):
        if options.num_runs == 1:
            return _run(task, options, engine, {}, options.output_dir or "")
        return _run_repeatedly(task, options, engine)


def _run_repeatedly(task: Task, options: FineTuningOptions, engine: Engine) -> Results:
    """Trains with several seeds, each in a folder of its own, on the same records."""
    output_dir = options.output_dir or ""
    examples: dict[str, Sequence[Any]] = {}
    names = run_names(options.num_runs)
    if engine.devices.is_chief:
        # What is in the way of the last run is to be known before the first.
        prepare_output_dir(output_dir, [RUNS], names)
        for name in names:
            prepare_output_dir(os.path.join(output_dir, name), *_written(task, {}))
    seeds = [(options.random_seed + number) % 2**32 for number in range(options.num_runs)]
    found = []
    for name, seed in zip(names, seeds, strict=True):
        folder = os.path.join(output_dir, name)
        engine.options = dataclasses.replace(
            options,
            num_runs=1,
            random_seed=seed,
            output_dir=folder,
            # That there is something to go on from is said of all runs together.
            resume="auto" if options.resume == "must" and found else options.resume,
        )
        log.info("%s of %d, --random_seed=%d", name, options.num_runs, seed)
        found.append(_run(task, engine.options, engine, examples, output_dir))
        # The models of all runs would not fit into the memory of a device.
        keras.backend.clear_session()
    figure = best_figure(options.best_metric, task.best_metrics)
    scores = [score_of(run.metrics, figure) for run in found]
    if not engine.devices.is_chief:
        return Results()
    return write_summary(output_dir, found, seeds, scores.index(max(scores)))


def _run(
    task: Task,
    options: FineTuningOptions,
    engine: Engine,
    examples: dict[str, Sequence[Any]],
    records_dir: str,
) -> Results:
    """One training, evaluation and prediction.

    Args:
        task: that is run.
        options: of this run.
        engine: the devices.
        examples: gets the splits that are needed and are not in it.
        records_dir: folder of the records.
    """
    # What is wrong with the data is found before a large model is made.
    _read_examples(task, options, examples)
    data = describe_data(task.identity(examples["train"])) if options.do_train else ""
    is_same = check_resumed(options, data)
    keras.utils.set_random_seed(options.random_seed)
    model = engine.build_model(
        task.build_model, options.recompute_layers, blank_encoder=bool(options.init_checkpoint)
    )
    _freeze_layers(model, options.freeze_layers)
    if options.do_train:
        engine.check_training(model)
    output_dir = options.output_dir or ""
    restored = restore_weights(
        model, output_dir, options.init_checkpoint, options.do_train, options.resume
    )
    runner = Runner(task, options, engine, model, examples, records_dir)
    global_step = checkpoint.step_of(restored) if restored else 0
    kept: dict[str, str] = {}
    num_train_steps, trainer, validation, row_loss = 0, None, None, task.loss
    if options.do_train:
        kept = {**task.assets(), **model_folder.contents(options, bool(restored), data)}
        row_loss = task.training_loss(examples["train"])
        num_rows = task.num_rows(examples["train"])
        num_train_steps = _num_train_steps(num_rows, options)
        every = options.steps_between_evaluations(num_rows / options.train_batch_size)
        validation = Validation(runner, every, global_step, kept)
        trainer = _make_trainer(runner, validation, num_train_steps, restored)
    for name, text in task.assets().items() if restored else ():
        model_folder.require_same(output_dir, name, text, "the labels of the data")
    if engine.devices.is_chief:
        for folder in {records_dir, output_dir}:
            prepare_output_dir(folder, *_written(task, kept))
    # Nobody writes before everybody has read what was there.
    require_same(engine.devices, global_step, "step that it goes on from", "--output_dir")
    require_same(engine.devices, num_train_steps, "number of steps", "the training data")
    require_same_options(engine.devices, engine.options)
    digest = validation.digest if validation else 0
    require_same(engine.devices, digest, "record of earlier evaluations", "--output_dir")

    if validation:
        if trainer:
            if engine.devices.is_chief:
                model_folder.write(output_dir, kept)
            _train(runner, trainer, row_loss, validation)
            global_step = int(trainer.optimizer.iterations.numpy())
        elif is_same and validation.best and validation.is_due(global_step, last=True):
            # The training was stopped between its last checkpoint and the evaluation of that.
            validation.evaluate(global_step)
        global_step = _take_best(runner, global_step)
    results = runner.write_results(global_step)
    if options.do_export and engine.devices.is_chief:
        results.files.append(export_task(task, model, options, os.path.join(output_dir, EXPORT)))
    # Nobody leaves before the chief has written.
    engine.devices.from_chief(0)
    return results


def _written(task: Task, kept: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Names of the files that a run may write, and of folders."""
    files_of_tasks = (*task.record_files.values(), *task.result_files)
    return [*files_of_tasks, *kept, MANIFEST, EVALUATIONS, CURVE, CURVE_PICTURE], [
        BEST_FOLDER,
        EXPORT,
    ]


def _read_examples(
    task: Task, options: FineTuningOptions, examples: dict[str, Sequence[Any]]
) -> None:
    """Reads the splits that are needed and not there yet."""
    splits = ["train"] * options.do_train + [task.evaluation_split] * options.evaluates
    splits += ["predict"] * options.do_predict
    for split in splits:
        if split not in examples:
            examples[split] = task.read_examples(split)


def _freeze_layers(model: Any, count: int) -> None:
    """Takes embeddings and the first layers out of the training."""
    layers = model.bert.encoder.transformer_layers
    if count > len(layers):
        raise UserError(f"--freeze_layers={count}, but the model has {len(layers)} layers")
    if count:
        model.bert.embeddings.trainable = False
        for layer in layers[:count]:
            layer.trainable = False
        log.info("Embeddings and %d of %d layers are not trained", count, len(layers))


def _num_train_steps(num_rows: int, options: FineTuningOptions) -> int:
    steps = int(num_rows / options.train_batch_size * options.num_train_epochs)
    if steps < 1:
        raise UserError(
            f"{num_rows} training examples in batches of {options.train_batch_size} for "
            f"{options.num_train_epochs} epochs are not one training step: lower "
            "--train_batch_size or raise --num_train_epochs"
        )
    return steps


def _make_trainer(
    runner: Runner, validation: Validation, num_train_steps: int, restored: str | None
) -> Trainer | None:
    """What trains the model; None where that is done already."""
    options = runner.options
    step = checkpoint.step_of(restored) if restored else 0
    if step >= num_train_steps:
        log.warning(
            "Skipping training: %s is at step %d already, and %g epochs are %d steps in all",
            restored,
            step,
            options.num_train_epochs,
            num_train_steps,
        )
        return None
    if validation.has_lost_patience:
        log.warning(
            "Skipping training: it ended at step %d, because the evaluations got no better", step
        )
        return None
    num_warmup_steps = int(num_train_steps * options.warmup_proportion)
    return runner.engine.make_trainer(runner.model, num_train_steps, num_warmup_steps, restored)


def _train(
    runner: Runner, trainer: Trainer, row_loss: Callable[..., Any], validation: Validation
) -> None:
    try:
        runner.train(trainer, row_loss, validation)
    except BaseException:
        # The reason why the training ends says more than why the curve cannot be written.
        with contextlib.suppress(UserError):
            _write_curve(runner, validation)
        raise
    _write_curve(runner, validation)


def _write_curve(runner: Runner, validation: Validation) -> None:
    if runner.is_chief:
        validation.write_curve()


def _take_best(runner: Runner, global_step: int) -> int:
    """Restores the best weights if the training had `--eval_every`; the step that they are from."""
    # Nobody reads before the chief has written.
    runner.engine.devices.from_chief(0)
    prefix = model_folder.best_prefix(runner.output_dir)
    if not prefix:
        return global_step
    checkpoint.restore(runner.model, prefix)
    step = checkpoint.step_of(prefix)
    log.info("Going on with the best weights, those of step %d: %s", step, prefix)
    return step
