"""The training loop: steps, checkpoints, summaries, evaluation and stopping.

`Model.fit` fails under multi-worker strategies (keras issue 20585). This loop runs the same code on
one device and on many, counts steps instead of epochs, and writes the original BERT's checkpoints.
"""

import concurrent.futures
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.base.progress import TrainingProgress
from bert_tf.base.signals import stop_request
from bert_tf.options import TrainingOptions
from bert_tf.training.curve import Scalars, TrainingCurve
from bert_tf.training.devices import Devices
from bert_tf.training.evaluation import EvalCallback
from bert_tf.training.explained_errors import explained_errors
from bert_tf.training.step import TrainState

# Most steps between TensorBoard summaries, as in the original BERT code; short runs write more.
SUMMARY_STEPS = 100


def train(
    train_step: Callable[[object, object], dict[str, tf.Tensor]],
    state: TrainState,
    batches: Iterable[object],
    options: TrainingOptions,
    devices: Devices,
    num_train_steps: int,
    curve: TrainingCurve | None = None,
    evaluation: EvalCallback | None = None,
) -> None:
    """Trains up to step `num_train_steps`, saves checkpoints, and evaluates with `evaluation`.

    `num_train_steps` includes the steps of earlier runs. Only the chief worker writes files.
    Continues after step `state.step`; `batches` must be endless and begin with the next step's
    batch. As in the original BERT code, `model.ckpt-<step>` is saved before the first step, every
    `save_checkpoints_steps` steps, and after the last. On Ctrl-C, SIGTERM or SIGHUP, training
    saves a checkpoint after the current step and stops.

    Raises:
        UserError: a checkpoint cannot be written, memory is exhausted, another worker was lost, or
            the loss is not finite.
        KeyboardInterrupt: after Ctrl-C.
        Terminated: after SIGTERM or SIGHUP.
    """
    step = first_step = state.step
    output_dir = options.output_dir or ""
    with contextlib.ExitStack() as stack:
        request = stack.enter_context(stop_request())
        saver = AsyncSaver(output_dir, options.keep_checkpoint_max)
        recorder = _Recorder(state, output_dir, num_train_steps, devices.is_chief, curve, saver)
        for resource in filter(None, (recorder, curve, saver)):
            stack.callback(resource.close)
        stack.enter_context(explained_errors(devices.workers))
        if checkpoints.latest(output_dir) is None:
            recorder.save(wait=True)
        early_stop = interrupted = False
        # Catch up if the previous run was killed between a checkpoint and its evaluation.
        if step and evaluation and evaluation.is_due(step, is_last_step=False):
            early_stop = recorder.evaluate(evaluation, step)
        unread_results: dict[str, tf.Tensor] = {}
        batch_iterator = iter(batches)
        while step < num_train_steps and not interrupted and not early_stop:
            saver.check()
            stop = tf.constant(int(request.signal_number is not None))
            batch, started = next(batch_iterator), time.monotonic()
            results = train_step(batch, stop)
            if devices.jit_compile and step == first_step:
                note(f"Compiled the training step in {time.monotonic() - started:.0f} s")
            step += 1
            # The device computes this step while the host reads the results of the previous one.
            if unread_results:
                recorder.record(step - 1, unread_results)
            unread_results = results
            interrupted = request.signal_number is not None
            if devices.workers > 1:  # All get the same sum, so they stop after the same step.
                interrupted = int(results["stop"]) > 0
            is_last_step = step == num_train_steps
            is_due = bool(evaluation and evaluation.is_due(step, is_last_step))
            if is_last_step or interrupted or is_due or step % options.save_checkpoints_steps == 0:
                recorder.record(step, unread_results)
                unread_results = {}
                # Before an evaluation or the end, the checkpoint must be on disk.
                recorder.save(wait=is_last_step or interrupted or is_due)
            if evaluation and is_due and not interrupted:
                early_stop = recorder.evaluate(evaluation, step)
        # A signal may also arrive during the last step or while its checkpoint is saved.
        if interrupted or request.signal_number is not None:
            advice = "" if options.resume == "never" else "; run the same command again to resume"
            warn(f"Stopped at step {step}{advice}")
            raise request.error()
        recorder.report(step)


class AsyncSaver:
    """Writes checkpoints to a folder in a background thread, in order and one at a time.

    On a CPU, taking a snapshot copies nothing. Only the next update copies: TensorFlow does not
    overwrite a value that a snapshot still references. For `max_to_keep`, see `add_newest`.
    """

    def __init__(self, folder: str, max_to_keep: int) -> None:
        self._folder, self._max_to_keep = folder, max_to_keep
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._pending: concurrent.futures.Future[str] | None = None

    def save(self, snapshot: Mapping[str, Any]) -> None:
        """Starts writing a checkpoint; raises a UserError if writing the previous one failed."""
        self.wait()
        arguments = self._folder, snapshot, self._max_to_keep
        self._pending = self._executor.submit(checkpoints.save_snapshot, *arguments)

    def check(self) -> None:
        """Raises a UserError if a finished write failed; does not wait."""
        if self._pending and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk; raises a UserError if writing fails."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def close(self) -> None:
        """Waits for a pending write; ignores its error, which could hide why training ended."""
        self._executor.shutdown()


@dataclasses.dataclass
class _Recorder:
    state: TrainState
    output_dir: str
    num_train_steps: int
    is_chief: bool
    curve: TrainingCurve | None
    saver: AsyncSaver

    def __post_init__(self) -> None:
        self._progress = TrainingProgress(self.state.step, self.num_train_steps)
        self._scalars = Scalars(self.output_dir)
        self._num_skipped = 0  # updates whose gradients overflowed, with loss scaling
        self._summary_steps = min(max(self.num_train_steps // 100, 1), SUMMARY_STEPS)

    def save(self, wait: bool) -> None:
        if not self.is_chief:
            return
        if self.curve:  # A process that is killed now resumes from an earlier row.
            self.curve.on_checkpoint()
        state = self.state
        self.saver.save(checkpoints.snapshot(state.model, state.optimizer, state.extra_variables))
        if wait:
            self.saver.wait()

    def evaluate(self, evaluation: EvalCallback, step: int) -> bool:
        # Throughput excludes evaluations.
        with self._progress.paused():
            return evaluation.evaluate(step)

    def record(self, step: int, results: Mapping[str, tf.Tensor]) -> None:
        """Waits for a step's results; raises a UserError if the loss or gradient is not finite."""
        values = {name: float(value) for name, value in results.items() if name != "stop"}
        self._require_finite(step, values)
        self._num_skipped += not np.isfinite(values["gradient_norm"])
        self._progress.update(step, values)
        if self.curve:
            self.curve.on_step(step, values)
        summaries = {name: values[name] for name in ("loss", "learning_rate", "gradient_norm")}
        is_due = step == self.num_train_steps or step % self._summary_steps == 0
        if is_due and self.is_chief:
            self._scalars.write(step, {**summaries, **self._progress.rates()})

    def report(self, step: int) -> None:
        self._progress.close()
        speed = f"{self._progress.seconds:.0f} s, {self._progress.describe_throughput()}"
        checkpoint = checkpoints.latest(self.output_dir)
        note(f"Trained up to step {step} in {speed}. Checkpoint: {checkpoint}")
        if self._num_skipped:
            skipped = counted(self._num_skipped, "update")
            note(f"Skipped {skipped}, because gradients overflowed in float16")

    def close(self) -> None:
        self._progress.close()
        self._scalars.close()

    def _require_finite(self, step: int, values: Mapping[str, float]) -> None:
        # With loss scaling, gradients overflow now and then, and such updates are skipped.
        must_be_finite = ("loss",) if values["loss_scale"] > 1.0 else ("loss", "gradient_norm")
        non_finite = [name for name in must_be_finite if not np.isfinite(values[name])]
        if non_finite:
            self.saver.close()
            newest = checkpoints.latest(self.output_dir) or ""
            last_good = f". Last good checkpoint: {newest}" * (not newest.endswith("ckpt-0"))
            name, rate = non_finite[0], f"learning rate {values['learning_rate']:.2e}"
            advice = "Lower --learning_rate"
            advice += ", or pass --precision=bfloat16" * (values["loss_scale"] != 1.0) + last_good
            problem = f"The {name.replace('_', ' ')} is {values[name]} at step {step} ({rate})"
            raise UserError(problem, fix=advice)
