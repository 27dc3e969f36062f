"""Handles SIGINT, SIGTERM and SIGHUP in scripts, their worker processes and training.

Also writes to a standard output that may be closed, for which other programs receive SIGPIPE.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, Any

from bert_tf.base.errors import Terminated, UserError, warn

# Ctrl-C; a scheduler or `kill`; a closed terminal, which Windows does not report.
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


def handle_signals(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """Sets the handler of `SIGNALS`, except for SIGINT and SIGHUP if this process ignores them."""
    for number in SIGNALS:
        # Shell scripts start background programs (`&`) with SIGINT ignored, and nohup SIGHUP.
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


@contextlib.contextmanager
def preserve_signal_handlers() -> Iterator[None]:
    """Restores signal handlers on exit."""
    handlers = [signal.getsignal(signal_number) for signal_number in SIGNALS]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for signal_number, handler in zip(SIGNALS, handlers, strict=True):
                signal.signal(signal_number, handler)


@contextlib.contextmanager
def ended_by_signals(seconds: int) -> Iterator[None]:
    """Lets `SIGNALS` end the process at once, and SIGALRM after some seconds, in a `with` block.

    This is for calls that hold Python's global lock, during which Python handles no signals. If
    such a call catches SIGTERM, as TensorFlow's does, only the time limit is left.
    """
    alarm = getattr(signal, "alarm", lambda seconds: 0)  # Windows has none.
    with preserve_signal_handlers():
        if threading.current_thread() is threading.main_thread():
            handle_signals(signal.SIG_DFL)
        alarm(seconds)
        try:
            yield
        finally:
            alarm(0)


class StopRequest:
    """Whether training should stop: `signal_number` is the signal received, or None."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stores the signal's number; a second Ctrl-C stops training immediately."""
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
        name = signal.Signals(number).name
        warn(f"Received {name}: finishing the current step and saving a checkpoint")

    def error(self) -> BaseException:
        """Returns the exception to raise once the checkpoint is saved."""
        number = self.signal_number or signal.SIGTERM
        return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches `SIGNALS`, so that training can save a checkpoint.

    Does nothing outside the main thread, where Python cannot handle signals.
    """
    request = StopRequest()
    with preserve_signal_handlers():
        if threading.current_thread() is threading.main_thread():
            handle_signals(request.handle)
        yield request


@contextlib.contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Yields stdout as a binary file. If it is a closed pipe (`| head`), the block just ends."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # Discard the rest, which Python would otherwise write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            problem = f"Cannot write to the standard output: {error.strerror or error}"
            raise UserError(problem) from error
