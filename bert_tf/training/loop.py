"""The training loop: steps, checkpoints, curves, and every way in which a training run can end.

A custom loop instead of `Model.fit`, which fails under multi-worker strategies (keras issue
20585): the same lines run on one device and on many, steps are counted instead of epochs, and
checkpoints are the original's.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.errors import UserError
from bert_tf.progress import Scalars, TrainingProgress, log
from bert_tf.training.async_checkpoint import AsyncSaver
from bert_tf.training.callbacks import Callback
from bert_tf.training.explained_errors import explained_errors
from bert_tf.training.signals import stop_request
from bert_tf.training.step import TrainState

# Interval of the points of the curves, as in the original.
SUMMARY_STEPS = 100


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """How long to train, and what to write.

    `num_train_steps` includes the steps before this run. Only the chief of the `workers` writes.
    """

    output_dir: str
    num_train_steps: int
    save_checkpoints_steps: int
    is_chief: bool = True
    workers: int = 1


def train(
    train_step: Callable[[object, object], dict[str, tf.Tensor]],
    state: TrainState,
    batches: Iterable[object],
    options: LoopOptions,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Trains up to a number of steps and writes checkpoints on the way.

    Starts from the state's step; `batches` is endless and begins with the batch of that step. As in
    the original, `model.ckpt-<step>` is written at the first step, every `save_checkpoints_steps`,
    and at the last. SIGTERM and Ctrl-C end the training after the current step, with a checkpoint.

    Raises:
        UserError: a checkpoint cannot be written, memory is exhausted, another worker is gone, or
            the loss is not finite.
        KeyboardInterrupt: after Ctrl-C.
        Terminated: after SIGTERM.
    """
    step, last_step = state.step, options.num_train_steps
    if step >= last_step:
        return
    with contextlib.ExitStack() as stack:
        request = stack.enter_context(stop_request())
        saver = AsyncSaver(options.output_dir)
        recorder = _Recorder(state, options, callbacks, saver)
        for part in (recorder, *callbacks, saver):
            stack.callback(part.close)
        stack.enter_context(explained_errors(options.workers))

        def due(last: bool) -> list[Callback]:
            return [callback for callback in callbacks if callback.is_due(step, last)]

        if checkpoints.latest(options.output_dir) is None:
            recorder.save(wait=True)
        # A run that was killed between a checkpoint and its evaluation left that out.
        ended, stopping = bool(step) and recorder.evaluate(step, due(last=False)), False
        pending: dict[str, tf.Tensor] = {}
        batch_iterator = iter(batches)
        while step < last_step and not stopping and not ended:
            for callback in callbacks:
                callback.before_step(step + 1)
            saver.check()
            stop = tf.constant(int(request.number is not None))
            results = train_step(next(batch_iterator), stop)
            step += 1
            # The device works while the results of the step before are read.
            if pending:
                recorder.record(step - 1, pending)
            pending = results
            # All processes see the same sum, so that all stop after the same step.
            stopping = int(results["stop"]) > 0 if options.workers > 1 else bool(request.number)
            last = step == last_step
            evaluating = due(last)
            if last or stopping or evaluating or step % options.save_checkpoints_steps == 0:
                recorder.record(step, pending)
                pending = {}
                # The checkpoint comes before an evaluation or the end.
                recorder.save(wait=bool(last or stopping or evaluating))
            if evaluating and not stopping:
                ended = recorder.evaluate(step, evaluating)
        # The signal may have arrived during the last step or its checkpoint.
        if stopping or request.number is not None:
            log.warning("Stopped at step %d; the same command resumes from there", step)
            raise request.error()
        recorder.report(step)


@dataclasses.dataclass
class _Recorder:
    """Records a training run: progress bar, curves, checkpoints, callbacks."""

    state: TrainState
    options: LoopOptions
    callbacks: Sequence[Callback]
    saver: AsyncSaver

    def __post_init__(self) -> None:
        self._progress = TrainingProgress(self.state.step, self.options.num_train_steps)
        self._scalars = Scalars(self.options.output_dir)

    def save(self, wait: bool) -> None:
        if not self.options.is_chief:
            return
        state = self.state
        self.saver.save(checkpoints.snapshot(state.model, state.optimizer, state.extra_variables))
        if wait:
            self.saver.wait()
        for callback in self.callbacks:
            callback.on_checkpoint()

    def evaluate(self, step: int, callbacks: Sequence[Callback]) -> bool:
        # Evaluations do not count for the throughput.
        with self._progress.paused():
            results = [callback.evaluate(step) for callback in callbacks]
            return any(results)

    def record(self, step: int, results: Mapping[str, tf.Tensor]) -> None:
        """Waits for the results of a step; raises a UserError if loss or gradient is not finite."""
        values = {name: float(value) for name, value in results.items() if name != "stop"}
        self._require_finite(step, values)
        self._progress.update(step, values)
        for callback in self.callbacks:
            callback.on_step(step, values)
        curves = {name: values[name] for name in ("loss", "learning_rate", "gradient_norm")}
        due = step == self.options.num_train_steps or step % SUMMARY_STEPS == 0
        if due and self.options.is_chief:
            self._scalars.write(step, {**curves, **self._progress.rates()})

    def report(self, step: int) -> None:
        self._progress.close()
        log.info(
            "Trained up to step %d in %.0f s, %s. Checkpoint: %s",
            step,
            self._progress.seconds,
            self._progress.describe(),
            checkpoints.latest(self.options.output_dir),
        )

    def close(self) -> None:
        self._progress.close()
        self._scalars.close()

    def _require_finite(self, step: int, values: Mapping[str, float]) -> None:
        # A loss scale is expected to make gradients overflow; such updates are skipped.
        checked = ("loss",) if values["loss_scale"] > 1.0 else ("loss", "gradient_norm")
        wrong = [name for name in checked if not np.isfinite(values[name])]
        if wrong:
            self.saver.close()
            newest = checkpoints.latest(self.options.output_dir)
            scaled = values["loss_scale"] != 1.0
            raise UserError(
                f"The {wrong[0].replace('_', ' ')} is {values[wrong[0]]} at step {step}, with a "
                f"learning rate of {values['learning_rate']:.2e}: lower --learning_rate"
                f"{', or pass --precision=bfloat16' * scaled}. The last good checkpoint is {newest}"
            )
