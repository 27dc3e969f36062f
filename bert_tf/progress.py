"""Messages, progress bars and TensorBoard scalars."""

import contextlib
import io
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

_BAR = "{desc}: {n_fmt}@/{total_fmt}@ |{bar}| {elapsed}<{remaining}{postfix}"

# Marks values as scalars for TensorBoard.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
)

# tqdm's escape sequence after a bar below another one.
_CURSOR_UP = "\x1b[A"


class _LogFile:
    """Writes every state of a bar to stderr as a line of its own, for log files."""

    def __init__(self) -> None:
        self._last = ""

    def write(self, text: str) -> None:
        """Writes a changed line without cursor movements."""
        line = text.replace(_CURSOR_UP, "").strip()
        if line not in ("", self._last):
            sys.stderr.write(line + "\n")
            self._last = line

    def flush(self) -> None:
        """Flushes stderr."""
        sys.stderr.flush()


def bar(total: int, what: str, initial: int = 0, unit: str = "") -> tqdm:
    """Creates a progress bar on stderr, with the speed if there is a `unit` such as "B"."""
    terminal = sys.stderr.isatty()
    refresh = _REFRESH_TERMINAL if terminal else _REFRESH_LOG
    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        file=io.StringIO() if log.level > logging.INFO else sys.stderr if terminal else _LogFile(),
        mininterval=refresh,
        # Otherwise a monitor thread of tqdm repeats lines.
        miniters=1,
        delay=refresh,
        ncols=None if terminal else 110,
        dynamic_ncols=terminal,
        unit=unit,
        unit_scale=bool(unit),
        bar_format=_BAR.replace("@", unit) + (", {rate_fmt}" if unit else ""),
    )


class TrainingProgress:
    """The bar of a training run: step, loss, learning rate, throughput, time left."""

    def __init__(self, first_step: int, total_steps: int) -> None:
        self._bar = bar(total_steps, "train", initial=first_step)
        self._refresh = self._bar.mininterval
        # Only `update` draws the bar, so that loss and step belong together.
        self._bar.mininterval, self._bar.miniters, self._bar.delay = 0, 0, 0
        self._created = self._shown = time.monotonic()
        self._step = first_step
        # Throughput counts from the end of the first step, which compiles, and leaves out the
        # second, which has begun by then.
        self._first_step = first_step + 1
        self._first_done = self._last_done = math.inf
        self._done = {"sequences": 0.0, "tokens": 0.0}

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Counts a step; `metrics` has `loss`, `learning_rate`, `sequences` and `tokens`."""
        self._step = step
        self._last_done = now = time.monotonic()
        if step <= self._first_step:
            self._first_done = now
            return
        if step > self._first_step + 1:
            for name in self._done:
                self._done[name] += metrics[name]
        if now - self._shown >= self._refresh or step == self._bar.total:
            self._shown = now
            self._bar.set_postfix_str(
                f"loss {metrics['loss']:.4f}, lr {metrics['learning_rate']:.2e}, {self.describe()}",
                refresh=False,
            )
            self._bar.update(step - self._bar.n)

    def rates(self) -> dict[str, float]:
        """Returns the mean throughput so far, as curves by name."""
        seconds = self._last_done - self._first_done
        if not seconds > 0 or not self._done["sequences"]:
            return {}
        return {f"{name}_per_second": done / seconds for name, done in self._done.items()}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of the block from the throughput."""
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self._first_done += seconds
        self._last_done += seconds

    def describe(self) -> str:
        """Returns the throughput as text."""
        rates = self.rates()
        if not rates:
            return "too short for a rate"
        return f"{rates['sequences_per_second']:.1f} seq/s, {rates['tokens_per_second']:,.0f} tok/s"

    def close(self) -> None:
        """Leaves the bar at the step where the training stopped."""
        if self._step != self._bar.n:
            # The loss shown is that of an earlier step.
            self._bar.set_postfix_str("", refresh=False)
            self._bar.update(self._step - self._bar.n)
        self._bar.close()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._created


class Scalars:
    """Writes scalars for TensorBoard to a folder; the file is created with the first of them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to each curve, except for values that are not finite."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if math.isfinite(value):
                    # As tf.summary.scalar, which needs TensorBoard.
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)

    def close(self) -> None:
        """Flushes and closes the file."""
        if self._writer is not None:
            self._writer.close()
