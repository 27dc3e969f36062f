"""Training loop callbacks: the interface, and the profiler."""

import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.progress import log


class Callback:
    """Base class of objects that the training loop calls; they may evaluate and stop training."""

    def before_step(self, step: int) -> None:
        """Called before each step; steps are numbered from 1."""

    def on_step(self, step: int, results: Mapping[str, float]) -> None:
        """Called after each step, in order, with the values that the training step returned."""

    def on_checkpoint(self) -> None:
        """Called on the chief when the loop saves a checkpoint."""

    def is_due(self, step: int, is_last_step: bool) -> bool:
        """Returns whether to evaluate at this step; must agree in all processes."""
        return False

    def evaluate(self, step: int) -> bool:
        """Evaluates; returns whether to stop training, which must agree in all processes."""
        return False

    def close(self) -> None:
        """Called once when training ends, even after an error."""


class Profiler(Callback):
    """Profiles the steps from `steps[0]` to `steps[1]`, inclusive, with TensorFlow's profiler."""

    def __init__(self, output_dir: str, steps: tuple[int, int], num_train_steps: int) -> None:
        self._output_dir = output_dir
        self._first, self._last = steps[0], min(steps[1], num_train_steps)
        self._num_train_steps = num_train_steps
        self._recorded_from: int | None = None
        if self._first > num_train_steps:
            message = "--profile_steps begins after the last step, %d; nothing will be recorded"
            log.warning(message, num_train_steps)

    def before_step(self, step: int) -> None:
        """Starts the profiler before the first step of the range and stops it after the last."""
        if self._recorded_from is None and self._first <= step <= self._last:
            tf.profiler.experimental.start(self._output_dir)
            self._recorded_from = step
        elif step > self._last:
            self._stop()

    def on_step(self, step: int, results: Mapping[str, float]) -> None:
        """Stops the profiler after the last training step, which no `before_step` follows."""
        if step == self._num_train_steps:
            self._stop()

    def _stop(self, save: bool = True) -> None:
        if self._recorded_from is None:
            return
        tf.profiler.experimental.stop(save=save)
        if save:
            folder = os.path.join(self._output_dir, "plugins", "profile")
            log.info("Profile of steps %d to %d: %s", self._recorded_from, self._last, folder)
        self._recorded_from = None

    def close(self) -> None:
        """Discards an incomplete profile."""
        self._stop(save=False)
