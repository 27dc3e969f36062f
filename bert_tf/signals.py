"""Handles SIGINT and SIGTERM in scripts, their worker processes and training."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bert_tf.errors import Terminated

# The same logger as `progress.log`. Importing `progress` would also import tqdm.
log = logging.getLogger("bert_tf")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def handle_signals(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """Sets the handler of SIGTERM, and that of SIGINT unless this process ignores it."""
    signal.signal(signal.SIGTERM, handler)
    # Shell scripts start background programs (`&`) with SIGINT ignored; keep that.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def preserve_signal_handlers() -> Iterator[None]:
    """Restores signal handlers on exit; TensorFlow replaces that of SIGTERM to connect workers."""
    handlers = [signal.getsignal(signal_number) for signal_number in SIGNALS]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for signal_number, handler in zip(SIGNALS, handlers, strict=True):
                signal.signal(signal_number, handler)


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
        log.warning("Received %s: finishing the current step and saving a checkpoint", name)

    def error(self) -> BaseException:
        """Returns the exception to raise once the checkpoint is saved."""
        return KeyboardInterrupt() if self.signal_number == signal.SIGINT else Terminated()


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches SIGINT (Ctrl-C) and SIGTERM, which schedulers send before preemption.

    Does nothing outside the main thread, where Python cannot handle signals.
    """
    request = StopRequest()
    with preserve_signal_handlers():
        if threading.current_thread() is threading.main_thread():
            handle_signals(request.handle)
        yield request
