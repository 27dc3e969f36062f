"""Signals that stop a training run: it finishes the step and saves first."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from bert_tf.errors import Terminated
from bert_tf.progress import log

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Restores signal handlers; TensorFlow replaces that of SIGTERM when it connects workers."""
    handlers = [signal.getsignal(number) for number in _SIGNALS]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in zip(_SIGNALS, handlers, strict=True):
                signal.signal(number, handler)


class StopRequest:
    """Remembers the number of a signal; None before one arrived."""

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. A second Ctrl-C does not wait."""
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        log.warning("%s: finishing the step and saving", signal.Signals(number).name)

    def error(self) -> BaseException:
        """Returns the exception to raise once everything is saved."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated()


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches SIGINT (Ctrl-C) and SIGTERM, which schedulers send before a preemption.

    Does nothing outside the main thread, where Python cannot handle signals.
    """
    request = StopRequest()
    with signals_kept():
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, request.handle)
        yield request
