"""The training loop: steps, checkpoints, curves, and every way in which it can end.

A loop of our own rather than `Model.fit`: it is the same few lines on one device and on many
(`Model.fit` fails under multi-worker strategies, keras issue 20585), it counts steps and not
epochs, as the original does, and it writes the original's checkpoints.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.errors import UserError, WorkerLost
from bert_tf.optimization import AdamWeightDecay
from bert_tf.progress import Scalars, TrainingProgress, log
from bert_tf.training.precision import LossScale
from bert_tf.training.saving import BackgroundSaver
from bert_tf.training.stopping import StopRequest, stop_request

# The original writes a point of its curves every so many steps.
SUMMARY_STEPS = 100

# TensorFlow's codes for a peer that does not answer any more.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """How long to train, and what to leave behind.

    Attributes:
        output_dir: takes checkpoints and curves.
        num_train_steps: total, steps before this run included.
        save_checkpoints_steps: steps between checkpoints.
        profile_steps: first and last step that TensorFlow's profiler records.
        is_chief: whether this process writes; the others only compute.
        workers: how many processes train together.
    """

    output_dir: str
    num_train_steps: int
    save_checkpoints_steps: int
    profile_steps: tuple[int, int] | None = None
    is_chief: bool = True
    workers: int = 1


class Observer:
    """What looks on while a model is trained, and may end that early; this one does neither."""

    def on_step(self, step: int, figures: Mapping[str, float]) -> None:
        """Called in order after each step, with what `make_train_step` says of it."""

    def on_checkpoint(self) -> None:
        """Called when a checkpoint is written, or is being; in the process that writes."""

    def is_due(self, step: int, last: bool) -> bool:
        """Whether `evaluate` is wanted at this step, the last of the training or not.

        All processes have to say the same.
        """
        return False

    def evaluate(self, step: int) -> bool:
        """Called after a step that is due, when its checkpoint is written.

        Returns:
            Whether the training ends here; the same in all processes.
        """
        return False


def train(
    train_step: Callable[[Any, Any], dict[str, tf.Tensor]],
    model: keras.Model,
    optimizer: AdamWeightDecay,
    batches: Iterable[Any],
    options: LoopOptions,
    loss_scale: LossScale | None = None,
    observer: Observer | None = None,
) -> None:
    """Trains up to a total number of steps, and writes checkpoints on the way.

    It starts from the step that the optimizer is at. As the original's, it writes
    `model.ckpt-<step>` at the first step, every `save_checkpoints_steps`, and at the last. SIGTERM
    and Ctrl-C end it after the step at hand, with a checkpoint.

    Args:
        train_step: as `make_train_step` gives it.
        model: that it trains.
        optimizer: that it updates with.
        batches: without end; begins with the batch of the first step to be done.
        options: see there.
        loss_scale: that the step uses.
        observer: is told of each step, and evaluates the model on the way.

    Raises:
        UserError: a checkpoint cannot be written, the memory does not suffice, another worker is
            gone, or the loss is not a number any more.
        KeyboardInterrupt: after Ctrl-C.
        Terminated: after SIGTERM.
    """
    if int(optimizer.iterations.numpy()) >= options.num_train_steps:
        return
    run = _Run(train_step, model, optimizer, options, loss_scale, observer or Observer())
    with stop_request() as request, contextlib.closing(run), explained_errors(options.workers):
        run.train(iter(batches), request)


class _Run:
    """One run of the loop."""

    def __init__(
        self,
        train_step: Callable[[Any, Any], dict[str, tf.Tensor]],
        model: keras.Model,
        optimizer: AdamWeightDecay,
        options: LoopOptions,
        loss_scale: LossScale | None,
        observer: Observer,
    ) -> None:
        self.train_step = train_step
        self.model = model
        self.optimizer = optimizer
        self.options = options
        self.observer = observer
        self.extra = loss_scale.variables if loss_scale else {}
        self.first = self.step = int(optimizer.iterations.numpy())
        self.progress = TrainingProgress(self.step, options.num_train_steps)
        self.scalars = Scalars(options.output_dir)
        self.saver = BackgroundSaver(options.output_dir)
        self.profiled_from: int | None = None

    def train(self, batches: Iterator[Any], request: StopRequest) -> None:
        options = self.options
        if options.profile_steps and options.profile_steps[0] > options.num_train_steps:
            log.warning(
                "--profile_steps begins at step %d, but there are only %d: nothing is recorded",
                options.profile_steps[0],
                options.num_train_steps,
            )
        if options.is_chief and checkpoint.latest(options.output_dir) is None:
            self._save(wait=True)
        behind: dict[str, tf.Tensor] = {}
        stopping = ended = False
        # What a run that was stopped between a checkpoint and its evaluation has left.
        if self.step and self.observer.is_due(self.step, last=False):
            ended = self._evaluate()
        while self.step < options.num_train_steps and not stopping and not ended:
            self._start_profile()
            self.saver.check()
            stop = tf.constant(int(request.number is not None))
            figures = self.train_step(next(batches), stop)
            self.step += 1
            # The device of a single process works while the figures of the step before are
            # looked at; several wait for each other here.
            if behind:
                self._look(self.step - 1, behind)
            behind = figures
            # All processes see the same sum, so that all stop after the same step.
            stopping = int(figures["stop"]) > 0 if options.workers > 1 else bool(request.number)
            last = self.step == options.num_train_steps
            due = self.observer.is_due(self.step, last)
            if last or stopping or due or self.step % options.save_checkpoints_steps == 0:
                self._look(self.step, behind)
                behind = {}
                # What ends here, or is evaluated, has its checkpoint first.
                self._save(wait=last or stopping or due)
            if due and not stopping:
                ended = self._evaluate()
            self._stop_profile(last or ended)
        # Also when the signal came during the last step or its saving.
        if stopping or request.number is not None:
            log.warning("Stopped at step %d; the same command goes on from there", self.step)
            raise request.error()
        self.progress.close()
        log.info(
            "Trained up to step %d in %.0f s, %s. Checkpoint: %s",
            self.step,
            self.progress.seconds,
            self.progress.describe(),
            checkpoint.latest(options.output_dir),
        )

    def close(self) -> None:
        """Ends checkpoints, bar, curves and profile."""
        self.saver.close()
        self.progress.close()
        self.scalars.close()
        if self.profiled_from is not None:
            tf.profiler.experimental.stop(save=False)

    def _evaluate(self) -> bool:
        """Whether the training ends. What the evaluation takes is no part of the throughput."""
        with self.progress.paused():
            return self.observer.evaluate(self.step)

    def _look(self, step: int, figures: dict[str, tf.Tensor]) -> None:
        """Shows the figures of a step, once it is done.

        Raises:
            UserError: its loss or its gradient is not a number.
        """
        values = {name: float(value) for name, value in figures.items() if name != "stop"}
        self._require_finite(step, values)
        self.progress.update(step, values)
        self.observer.on_step(step, values)
        curves = {name: values[name] for name in ("loss", "learning_rate", "gradient_norm")}
        due = step == self.options.num_train_steps or step % SUMMARY_STEPS == 0
        if due and self.options.is_chief:
            self.scalars.write(step, {**curves, **self.progress.rates()})

    def _require_finite(self, step: int, values: dict[str, float]) -> None:
        # A gradient that only a loss scale makes overflow is expected, and left out.
        checked = ("loss",) if values["loss_scale"] > 1.0 else ("loss", "gradient_norm")
        wrong = [name for name in checked if not np.isfinite(values[name])]
        if wrong:
            self.saver.close()
            newest = checkpoint.latest(self.options.output_dir)
            scaled = values["loss_scale"] != 1.0
            raise UserError(
                f"The {wrong[0].replace('_', ' ')} is {values[wrong[0]]} at step {step}, with a "
                f"learning rate of {values['learning_rate']:.2e}: lower --learning_rate"
                f"{', or pass --precision=bfloat16' * scaled}. The last good checkpoint is {newest}"
            )

    def _save(self, wait: bool) -> None:
        if self.options.is_chief:
            self.saver.save(checkpoint.snapshot(self.model, self.optimizer, self.extra))
            if wait:
                self.saver.wait()
            self.observer.on_checkpoint()

    def _start_profile(self) -> None:
        """Before a step: starts the profiler when it is the first to be recorded."""
        steps = self.options.profile_steps
        due = steps and self.options.is_chief and steps[0] <= self.step + 1 <= steps[1]
        if due and self.profiled_from is None:
            tf.profiler.experimental.start(self.options.output_dir)
            self.profiled_from = self.step + 1

    def _stop_profile(self, last: bool) -> None:
        """After a step: stops it when it was the last to be recorded."""
        steps = self.options.profile_steps
        if self.profiled_from is None or not steps or (self.step < steps[1] and not last):
            return
        tf.profiler.experimental.stop()
        folder = os.path.join(self.options.output_dir, "plugins", "profile")
        log.info("Profile of steps %d to %d: %s", self.profiled_from, self.step, folder)
        self.profiled_from = None


@contextlib.contextmanager
def explained_errors(workers: int = 1) -> Iterator[None]:
    """Turns what TensorFlow raises for memory, files and lost workers into errors of the user.

    Args:
        workers: how many processes work together.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        wanted = error.message.split("\n")[0][:160]
        if "No space left" in wanted:
            raise UserError(f"The disk is full: {wanted}") from error
        raise UserError(
            "The memory of the device does not suffice. What helps, without changing the result: "
            "--gradient_accumulation_steps=2 (or 4, 8, ...), --recompute_layers=true; almost "
            "without: --precision=bfloat16; and for short texts a lower --max_seq_length. In "
            "evaluation, prediction and extraction: a lower --eval_batch_size, "
            "--predict_batch_size or --batch_size. "
            f"(TensorFlow says: {wanted})"
        ) from error
    except tf.errors.NotFoundError as error:
        reason = " ".join(error.message.split())[:160]
        raise UserError(
            "A file has been removed that was there when the work began; the same command goes on "
            f"from the last checkpoint. (TensorFlow says: {reason})"
        ) from error
    except tf.errors.DataLossError as error:
        raise UserError(
            f"A file of records is damaged: make it anew. (TensorFlow says: {error.message})"
        ) from error
    except _LOST as error:
        if workers == 1:
            raise
        # Behind that TensorFlow puts a traceback.
        reason = " ".join(error.message.split()).partition(" defined at ")[0][:200]
        raise WorkerLost(
            "Another worker is gone, so this one ends too. Start all workers again with the same "
            f"command: they go on from the last checkpoint. (TensorFlow says: {reason})"
        ) from error
