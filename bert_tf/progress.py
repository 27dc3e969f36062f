"""What a person sees while a script runs: messages, a progress bar, TensorBoard scalars."""

import contextlib
import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

log = logging.getLogger("bert_tf")


def warnings_only() -> None:
    """Hides progress bars and messages below warnings, for workers other than the chief."""
    log.setLevel(logging.WARNING)


# Seconds between two lines: on a terminal the line is overwritten, in a log file each stays.
_REFRESH_TERMINAL = 0.5
_REFRESH_LOG = 15.0

# By this mark TensorBoard knows a curve.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
)


# What a bar below another one writes to get back to that.
_CURSOR_UP = "\x1b[A"


class _Nowhere:
    """A file for the bars of a process that only speaks of trouble."""

    def write(self, text: str) -> None:
        """Forgets the text."""

    def flush(self) -> None:
        """Does nothing."""


class _LogFile:
    """Gives every state of a bar a line of its own, for a log that other messages go to, too."""

    def __init__(self) -> None:
        self._last = ""

    def write(self, text: str) -> None:
        """Writes what a bar overwrites its line with, but not where it moves the cursor."""
        line = text.replace(_CURSOR_UP, "").strip()
        if line not in ("", self._last):
            sys.stderr.write(line + "\n")
            self._last = line

    def flush(self) -> None:
        """Flushes stderr."""
        sys.stderr.flush()


def bar(total: int, what: str, initial: int = 0, unit: str = "") -> tqdm:
    """A progress bar on stderr; one that is done at once is never shown.

    Args:
        total: what `update` counts up to.
        what: stands before it.
        initial: where it starts.
        unit: of what is counted in thousands and millions, as "B" for bytes; it shows the speed.
    """
    counts = "{n_fmt}" + unit + "/{total_fmt}" + unit
    terminal = sys.stderr.isatty()
    refresh = _REFRESH_TERMINAL if terminal else _REFRESH_LOG
    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        file=_Nowhere() if log.level > logging.INFO else sys.stderr if terminal else _LogFile(),
        mininterval=refresh,
        # Otherwise another thread of tqdm writes what has been written already.
        miniters=1,
        delay=refresh,
        # A log file is not overwritten: a fixed width keeps its lines alike.
        ncols=None if terminal else 110,
        dynamic_ncols=terminal,
        unit=unit,
        unit_scale=bool(unit),
        bar_format=f"{{desc}}: {counts} |{{bar}}| {{elapsed}}<{{remaining}}{{postfix}}"
        + (", {rate_fmt}" if unit else ""),
    )


class TrainingProgress:
    """The bar of a training run: step, loss, learning rate, throughput, time left.

    Args:
        first_step: steps already done before this run.
        total_steps: steps at the end of the training.
    """

    def __init__(self, first_step: int, total_steps: int) -> None:
        self._bar = bar(total_steps, "train", initial=first_step)
        self._refresh = self._bar.mininterval
        # What stands in the line is of one step: it is drawn here and at no other time.
        self._bar.mininterval, self._bar.miniters, self._bar.delay = 0, 0, 0
        self._created = self._shown = time.monotonic()
        self._step = first_step
        # The first step compiles, and the second is under way when the first one's figures are
        # looked at: throughput counts from then on, without the second.
        self._first_step = first_step + 1
        self._first_done = self._last_done = math.inf
        self._done = {"sequences": 0.0, "tokens": 0.0}

    def update(self, step: int, figures: Mapping[str, float]) -> None:
        """Called after each step.

        Args:
            step: steps done.
            figures: of this step: `loss`, `learning_rate`, `sequences`, and `tokens` without
                padding.
        """
        self._step = step
        self._last_done = now = time.monotonic()
        if step <= self._first_step:
            self._first_done = now
            return
        if step > self._first_step + 1:
            for name in self._done:
                self._done[name] += figures[name]
        if now - self._shown >= self._refresh or step == self._bar.total:
            self._shown = now
            self._bar.set_postfix_str(
                f"loss {figures['loss']:.4f}, lr {figures['learning_rate']:.2e}, {self.describe()}",
                refresh=False,
            )
            self._bar.update(step - self._bar.n)

    def rates(self) -> dict[str, float]:
        """Mean throughput so far: curves by name."""
        seconds = self._last_done - self._first_done
        if not seconds > 0 or not self._done["sequences"]:
            return {}
        return {f"{name}_per_second": done / seconds for name, done in self._done.items()}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Around what is no training: it does not count for the throughput."""
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self._first_done += seconds
        self._last_done += seconds

    def describe(self) -> str:
        """The throughput, for a person."""
        rates = self.rates()
        if not rates:
            return "too short for a rate"
        return f"{rates['sequences_per_second']:.1f} seq/s, {rates['tokens_per_second']:,.0f} tok/s"

    def close(self) -> None:
        """Leaves the last line standing, at the step where the training stopped."""
        if self._step != self._bar.n:
            # Loss and rate in the line are of an earlier step.
            self._bar.set_postfix_str("", refresh=False)
            self._bar.update(self._step - self._bar.n)
        self._bar.close()

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._created


class Scalars:
    """Scalars for TensorBoard in a folder; the file appears with the first of them.

    Args:
        folder: where `events.out.tfevents...` is written.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to each curve; values that are not finite are left out."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if math.isfinite(value):
                    # What tf.summary.scalar does, which only works where TensorBoard is installed.
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)

    def close(self) -> None:
        """Writes out what is buffered."""
        if self._writer is not None:
            self._writer.close()
