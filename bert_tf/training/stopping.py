"""Signals that ask a training to stop: the step is finished and saved first."""

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
    """Puts handlers back: TensorFlow catches SIGTERM by itself when it connects workers."""
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in previous.items():
                signal.signal(number, handler)


class StopRequest:
    """Whether somebody asked to stop, and how.

    Attributes:
        number: of the signal; None while nobody has asked.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. A second Ctrl-C does not wait."""
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        log.warning("%s: finishing the step and saving", signal.Signals(number).name)

    def error(self) -> BaseException:
        """What to raise when everything is saved."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Terminated()


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches SIGINT (Ctrl-C) and SIGTERM, by which schedulers announce a preemption.

    Only the main thread of a process can; elsewhere signals do what they did.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, request.handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
