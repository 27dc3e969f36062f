"""The course of a run that trains and evaluates, for fine-tuning and pre-training."""

import abc
import contextlib
import dataclasses
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoints, training
from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.checkpoints.folder import warn_if_incomplete
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.features import Feature
from bert_tf.options import registry
from bert_tf.options.declare import DURATION, NOTHING, PATH
from bert_tf.runs.output_dir import EVAL_RESULTS, Results
from bert_tf.training.curve import TrainingCurve
from bert_tf.training.evaluation import EvalCallback, Monitor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What data and options say about training; the defaults are for a run without training.

    Attributes:
        num_train_steps: number of steps, including those of earlier runs.
        num_warmup_steps: number of steps with learning rate warm-up.
        eval_interval: steps between evaluations during training; None for no such evaluations.
        eval_examples: identifies the examples of these evaluations.
        continues: whether the run continues an earlier one, with the same data and flags.
        metadata: name -> text of the files that belong next to checkpoints.
        shared: name -> number that must be the same for all workers.
    """

    num_train_steps: int = 0
    num_warmup_steps: int = 0
    eval_interval: int | None = None
    eval_examples: str = ""
    continues: bool = False
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TrainingRecords:
    """Record files to train on.

    `shuffle_buffer` is the number of records in the shuffle buffer; None leaves it to
    `read_dataset`.
    """

    paths: str | Sequence[str]
    features: Sequence[Feature]
    shuffle_buffer: int | None
    lengths: training.Lengths


@contextlib.contextmanager
def _preserve_generators() -> Iterator[None]:
    """Restores the global generators of Python and NumPy, which a run seeds."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


@dataclasses.dataclass(eq=False)
class TrainingRun(abc.ABC):
    """A run in one `output_dir`; subclasses implement the steps that differ.

    Attributes:
        monitor: the metric that selects the best weights.
        model: the model. This attribute and the next ones are set by `run`.
        restored: the checkpoint in `output_dir` that was loaded; None if there is none.
        step: the step of the model's weights.
        has_trained: whether this run has made training steps.
    """

    options: Any
    devices: training.Devices
    monitor: Monitor

    # C for rows of shape [C, S], as in multiple choice; 1 for rows of shape [S].
    texts_per_row = 1
    # See `training.make_train_step`.
    loss_uses_padding = False
    has_trained = False

    def __post_init__(self) -> None:
        self.folder = RunFolder(self.options.output_dir or "")

    @abc.abstractmethod
    def prepare(self) -> Plan:
        """Reads and checks the data; raises a UserError for a user's mistake. Writes nothing."""

    @abc.abstractmethod
    def build_model(self, **kwargs: Any) -> keras.Model:
        """Builds the model; `kwargs` are arguments of `ConfiguredModel`."""

    @abc.abstractmethod
    def training_records(self) -> TrainingRecords:
        """Returns the records to train on; all processes call it."""

    @abc.abstractmethod
    def loss(self) -> training.Loss:
        """Returns the loss to minimize."""

    @abc.abstractmethod
    def compute_metrics(self) -> Mapping[str, Any]:
        """Evaluates the model with its current weights."""

    @abc.abstractmethod
    def evaluate_and_predict(self) -> Results:
        """Computes and writes what the options ask for, with the final weights."""

    @_preserve_generators()
    def run(self) -> Results:
        """Trains, evaluates and predicts, depending on the options."""
        options, devices = self.options, self.devices
        plan = self.prepare()
        self.model, self.restored = self.build_and_restore()
        self.step = checkpoints.step_of(self.restored) if self.restored else 0
        evaluation = self._make_evaluation(plan) if plan.eval_interval else None
        if devices.is_chief:
            files.make_dirs(self.folder.path)
            file_names.require_writable(self.folder.file(EVAL_RESULTS))
        shared = {
            "flags": repr(options.values(~NOTHING, without=PATH)),
            "step to resume from (--output_dir)": self.step,
            "number of steps (the training data)": plan.num_train_steps,
            "checksum of evaluations.json (--output_dir)": evaluation.digest if evaluation else 0,
        }
        devices.require_agreement({**shared, **plan.shared})
        if options.do_train:
            if self._has_steps_left(plan, evaluation):
                self._train(plan, evaluation)
            elif evaluation and plan.continues and evaluation.was_missed(self.step):
                evaluation.evaluate(self.step)
            if devices.is_chief:
                self.folder.write_end()
            self._restore_best()
        results = self.evaluate_and_predict()
        devices.barrier()  # until the chief has written its files
        return results

    def build_and_restore(self) -> tuple[keras.Model, str | None]:
        """Returns the model with its first weights, and the checkpoint in `output_dir`, if any."""
        options, devices = self.options, self.devices
        keras.utils.set_random_seed(options.random_seed)
        # Zeros are faster than random weights, which the checkpoint would replace anyway.
        zero = bool(options.init_checkpoint)
        model = training.build_model(self.build_model, devices, options.recompute_layers, zero)
        if options.do_train:
            training.check_training(model, options, devices, self.texts_per_row)
        return model, load_first_weights(model, options)

    def _make_evaluation(self, plan: Plan) -> EvalCallback:
        return EvalCallback(
            compute_metrics=self.compute_metrics,
            model=self.model,
            output_dir=self.folder.path,
            every=plan.eval_interval or 0,
            monitor=self.monitor,
            patience=self.options.early_stopping_patience,
            initial_step=self.step,
            examples_key=plan.eval_examples,
            extra_files=plan.metadata,
            is_chief=self.devices.is_chief,
        )

    def _has_steps_left(self, plan: Plan, evaluation: EvalCallback | None) -> bool:
        if self.step >= plan.num_train_steps:
            flags = " or ".join(f"--{name}" for name in self.options.names(DURATION))
            reason = f"of {plan.num_train_steps}; to continue, raise {flags}"
        elif evaluation and evaluation.should_stop:
            reason = "by early stopping"
        else:
            return True
        warn(f"Skipping training: it ended at step {self.step} {reason}", at=self.restored)
        return False

    def _train(self, plan: Plan, evaluation: EvalCallback | None) -> None:
        options, devices, num_steps = self.options, self.devices, plan.num_train_steps
        state = training.create_train_state(
            self.model, options, devices, num_steps, plan.num_warmup_steps
        )
        if self.restored:
            checkpoints.restore_training_state(state, self.restored)
        if devices.is_chief:
            files.write_texts(self.folder.path, plan.metadata)
        records = self.training_records()
        devices = training.for_training(
            devices, options, num_steps, records.lengths, self.texts_per_row
        )
        batches = training.training_batches(
            records.paths,
            records.features,
            options,
            devices,
            num_records=records.shuffle_buffer,
            skip_batches=self.step,
        )
        train_step = training.make_train_step(
            state, self.loss(), options, devices, batches.element_spec, self.loss_uses_padding
        )
        points = (lambda: evaluation.points) if evaluation else dict
        curve = TrainingCurve(self.folder.path, self.step, points, devices.is_chief)
        training.train(train_step, state, batches, options, devices, num_steps, curve, evaluation)
        self.step, self.has_trained = state.step, True

    def _restore_best(self) -> None:
        self.devices.barrier()  # The chief may still be writing the best weights.
        if prefix := self.folder.best:
            checkpoints.load_weights(self.model, prefix)
            self.step = checkpoints.step_of(prefix)
            note(f"Restored the best weights, from step {self.step}: {prefix}")


def load_first_weights(model: keras.Model, options: Any) -> str | None:
    """Loads the newest checkpoint in `output_dir`, or `init_checkpoint` if there is none.

    Without training, loads the best checkpoint if the run had `eval_every`. Skips damaged
    checkpoints. Returns the checkpoint in `output_dir`, or None if it has none. Raises a UserError
    if the checkpoint does not match the model, or if `resume` forbids loading it.
    """
    checkpoint = RunFolder(options.output_dir or "").checkpoint_to_resume(options)
    if checkpoint:
        _load_own_checkpoint(model, checkpoint, options)
    elif options.init_checkpoint:
        _load_init_checkpoint(model, options)
    else:
        is_pretraining = not registry.entries()[registry.script_of(type(options))].make_task
        tell = note if is_pretraining and options.do_train else warn
        tell("No --init_checkpoint: all weights are initialized randomly")
    return checkpoint


def _load_own_checkpoint(model: keras.Model, checkpoint: str, options: Any) -> None:
    try:
        source = find_source(checkpoint)
        if options.do_train:  # The notes would say that training has not ended.
            source.notes.clear()
        loaded = checkpoints.load_weights(model, source)
        loaded.require_exact(advice="")
    except UserError as error:
        problem = f"Cannot load the checkpoint in --output_dir={options.output_dir}. {error}"
        advice = "Choose another --output_dir, or empty this one" if options.do_train else None
        raise UserError(problem, fix=advice) from error
    action = "Resuming from" if options.do_train else "Loaded"
    note(f"{action} {checkpoint} ({len(loaded.restored)} variables)")
    init_checkpoint = options.init_checkpoint
    if not init_checkpoint:
        return
    begun_from = RunFolder(options.output_dir).entry("begun_from")
    known = [_normalize(path) for path in (checkpoint, begun_from) if path]
    if _normalize(init_checkpoint) not in known:
        # A path that does not exist may be the one that the checkpoint had before it was moved.
        exists = begun_from and any(map(files.exists, (begun_from, f"{begun_from}.index")))
        problem = f"--init_checkpoint={init_checkpoint} is ignored: --output_dir has its own"
        (warn if exists else note)(f"{problem} checkpoints, from {begun_from or 'random weights'}")


def _load_init_checkpoint(model: keras.Model, options: Any) -> None:
    layers = options.init_layer_numbers
    warn_if_incomplete(options.init_checkpoint)
    loaded = checkpoints.load_weights(model, find_source(options.init_checkpoint), layers)
    if layers:
        listed, count = ", ".join(map(str, layers)), counted(len(layers), "layer")
        note(f"Initialized {count} from {loaded.prefix}: {listed}, counting from 0")
    note(loaded.describe())
    if loaded.new and not options.do_train:
        missing = checkpoints.summarize(loaded.new)
        problem = f"Not in {loaded.prefix}, so initialized randomly: {missing}"
        warn(problem, fix="Pass --do_train=true, or another checkpoint")


def _normalize(path: str) -> str:
    """Returns the prefix of the checkpoint at a path, which may be its folder, for comparisons."""
    with contextlib.suppress(UserError):
        path = checkpoints.resolve(path)
    return os.path.realpath(path)
