"""Handles SIGINT and SIGTERM: training finishes the current step and saves before it stops."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from bert_tf.errors import Terminated
from bert_tf.progress import log

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def preserve_signal_handlers() -> Iterator[None]:
    """Restores signal handlers on exit: TensorFlow replaces SIGTERM's to connect workers."""
    handlers = [signal.getsignal(number) for number in _SIGNALS]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in zip(_SIGNALS, handlers, strict=True):
                signal.signal(number, handler)


class StopRequest:
    """Stores the number of the signal received, or None."""

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal; a second Ctrl-C stops training immediately."""
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        log.warning("%s: finishing the current step and saving", signal.Signals(number).name)

    def error(self) -> BaseException:
        """Returns the exception to raise after saving."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated()


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches SIGINT (Ctrl-C) and SIGTERM, which schedulers send before preemption.

    Does nothing outside the main thread, where Python cannot handle signals.
    """
    request = StopRequest()
    with preserve_signal_handlers():
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, request.handle)
        yield request
