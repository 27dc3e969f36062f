"""Logging and progress bars."""

import contextlib
import io
import logging
import math
import shutil
import sys
import textwrap
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from bert_tf.base.errors import log


def _stderr() -> Any:
    """Returns stderr; without one, as in a program that has no console, a file for nobody."""
    return sys.stderr or io.StringIO()


def text_wrapper(indent: str, columns: int = 80) -> textwrap.TextWrapper:
    """Wraps text between words, to the width of the terminal, or without one to `columns`."""
    return textwrap.TextWrapper(
        shutil.get_terminal_size((columns, 24)).columns,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


class LogHandler(logging.StreamHandler):
    """Writes messages to stderr, above any progress bars; warnings and errors with their level.

    In a terminal, wraps lines; not those of warnings and errors, which have commands to copy.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a message."""
        text = self.format(record)
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname}: {text}"
        elif _stderr().isatty():
            text = "\n".join(map(text_wrapper("  ").fill, text.split("\n")))
        tqdm.write(text, file=_stderr())


# Seconds between updates; longer in a log file, where each update is a line of its own.
_REFRESH_TERMINAL = 0.5
_REFRESH_LOG = 15.0

# Format of a bar; @ stands for the unit.
_BAR = "{desc}: {n_fmt}@/{total_fmt}@ |{bar}| {elapsed}<{remaining}{postfix}"

# The escape sequence that tqdm writes after a nested bar.
_CURSOR_UP = "\x1b[A"


class _LineWriter:
    """Writes each update of a progress bar to stderr as a line of its own, for log files."""

    def __init__(self) -> None:
        self._last_line = ""

    def write(self, text: str) -> None:
        """Writes a line without cursor movements, unless it repeats the last line."""
        line = text.replace(_CURSOR_UP, "").strip()
        if line not in ("", self._last_line):
            _stderr().write(line + "\n")
            self._last_line = line

    def flush(self) -> None:
        """Flushes stderr."""
        _stderr().flush()


def _notebook() -> Any:
    """Returns IPython if this is the kernel of a notebook; otherwise None."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return ipython if type(shell).__name__ == "ZMQInteractiveShell" else None


def show_table(names: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    """In a notebook, shows a table of numbers with the names of its columns."""
    if (ipython := _notebook()) and names:
        cells = [[f"{value:.4g}" for value in row] for row in rows]
        lines = ["".join(f"<th>{name}</th>" for name in names)]
        lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in cells]
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        ipython.display.display(ipython.display.HTML(f"<table>{table}</table>"))


_bars: "weakref.WeakSet[tqdm]" = weakref.WeakSet()


def bar(total: int, description: str, initial: int = 0, unit: str = "") -> tqdm:
    """Creates a progress bar on stderr; with a `unit` such as "B", it also shows the speed.

    In a notebook, which has no lines above each other, only the outermost bar is visible.
    """
    notebook = bool(_notebook())
    is_hidden = notebook and any(not other.disable for other in _bars)
    terminal = _stderr().isatty() or notebook
    refresh = _REFRESH_TERMINAL if terminal else _REFRESH_LOG
    stderr = _stderr() if terminal else _LineWriter()
    new = tqdm(
        total=total,
        initial=initial,
        desc=description,
        file=io.StringIO() if is_hidden or log.level > logging.INFO else stderr,
        mininterval=refresh,
        # Otherwise tqdm's monitor thread repeats lines.
        miniters=1,
        delay=refresh,
        ncols=80 if notebook or not terminal else None,
        dynamic_ncols=terminal and not notebook,
        unit=unit,
        unit_scale=bool(unit),
        bar_format=_BAR.replace("@", unit) + (", {rate_fmt}" if unit else ""),
    )
    _bars.add(new)
    return new


class TrainingProgress:
    """The training progress bar: step, loss, learning rate, throughput, remaining time."""

    def __init__(self, initial_step: int, total_steps: int) -> None:
        self._bar = bar(total_steps, "train", initial=initial_step)
        self._bar.delay = 0  # `close` shows the last step, however short the training was.
        self._created = time.monotonic()
        # Throughput excludes the first step, which compiles, and the second, which starts before
        # the first is recorded.
        self._first_step = initial_step + 1
        self._measured_from = self._measured_until = math.inf
        self._processed = {"sequences": 0.0, "tokens": 0.0}

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records a step; `metrics` has `loss`, `learning_rate`, `sequences` and `tokens`."""
        self._measured_until = now = time.monotonic()
        if step <= self._first_step:
            self._measured_from = now
        elif step > self._first_step + 1:
            for name in self._processed:
                self._processed[name] += metrics[name]
        # Short enough for 80 columns: tqdm cuts off what does not fit.
        postfix = f"loss {metrics['loss']:.4f}, lr {metrics['learning_rate']:.1e}"
        rates = self.rates()
        postfix += f", {rates['sequences_per_second']:.1f} seq/s" if rates else ""
        # The first step takes much longer than the others, so it does not tell the remaining time.
        remaining = "<{remaining}" if rates else ""
        self._bar.bar_format = _BAR.replace("@", "").replace("<{remaining}", remaining)
        self._bar.set_postfix_str(postfix, refresh=False)
        self._bar.update(step - self._bar.n)

    def rates(self) -> dict[str, float]:
        """Returns `sequences_per_second` and `tokens_per_second` so far; empty if unknown."""
        seconds = self._measured_until - self._measured_from
        if not seconds > 0 or not self._processed["sequences"]:
            return {}
        return {f"{name}_per_second": count / seconds for name, count in self._processed.items()}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in the `with` block from the throughput."""
        start = time.monotonic()
        yield
        seconds = time.monotonic() - start
        self._measured_from += seconds
        self._measured_until += seconds

    def describe_throughput(self) -> str:
        """Returns the throughput as text, such as "8.0 seq/s, 1,024 tok/s"."""
        rates = self.rates()
        if not rates:
            return "throughput unknown"
        return f"{rates['sequences_per_second']:.1f} seq/s, {rates['tokens_per_second']:,.0f} tok/s"

    def close(self) -> None:
        """Closes the bar, at the step where training stopped."""
        self._bar.close()

    @property
    def seconds(self) -> float:
        """Seconds since training started."""
        return time.monotonic() - self._created
