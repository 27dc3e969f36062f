"""Main functions of the scripts, by name: `from bert_tf.scripts import run_classifier`.

This module imports next to nothing, so that Ctrl-C and other signals end a script with one line
even while it is importing TensorFlow.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

from bert_tf import registry
from bert_tf.errors import Terminated
from bert_tf.signals import handle_signals, log, preserve_signal_handlers


def __getattr__(name: str) -> Callable[[], None]:
    if name not in registry.SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_main, name)


def _main(name: str) -> None:
    with _preserve_process() as stderr:

        def exit_now(signal_number: int, frame: FrameType | None) -> None:
            # Exit without an exception, which the module that is being imported might swallow.
            is_interrupt = signal_number == signal.SIGINT
            os.write(stderr, b"Interrupted.\n" if is_interrupt else b"Terminated.\n")
            os._exit(128 + signal_number)

        handle_signals(exit_now)
        os.environ.update(registry.SCRIPTS[name].environment)
        from bert_tf import cli

        with cli.exit_with_message():
            options = cli.read_options(name, sys.argv)
            # From here on, exceptions let the script remove its temporary files.
            handle_signals(_raise)
            registry.get_runner(name)(options)


@contextlib.contextmanager
def _preserve_process() -> Iterator[int]:
    """Restores a process that goes on after a script, as with `%run` in a notebook.

    Yields a copy of stderr: while TensorFlow is imported, file descriptor 2 is redirected.
    """
    environment, stderr = {**os.environ}, os.dup(2)
    handlers, level, propagate = [*log.handlers], log.level, log.propagate
    try:
        with preserve_signal_handlers():
            yield stderr
    finally:
        os.close(stderr)
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)
        for name in {*os.environ} - {*environment}:
            del os.environ[name]
        os.environ.update(environment)


def _raise(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if signal_number == signal.SIGINT else Terminated(signal_number)
