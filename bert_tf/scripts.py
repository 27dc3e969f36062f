"""The main functions of the scripts, by name: `from bert_tf.scripts import run_classifier`.

Imports next to nothing, so that Ctrl-C and SIGTERM end a script with one line even while it imports
the rest.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

from bert_tf import registry
from bert_tf.errors import Terminated


def __getattr__(name: str) -> Callable[[], None]:
    if name not in registry.SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_main, name)


def _main(name: str) -> None:
    # Importing TensorFlow redirects file descriptor 2.
    stderr = os.dup(2)

    def end(number: int, frame: FrameType | None) -> None:
        # An exception could be swallowed by whatever is being imported.
        os.write(stderr, b"Interrupted.\n" if number == signal.SIGINT else b"Terminated.\n")
        os._exit(128 + number)

    _handle_signals(end)
    for variable, value in registry.SCRIPTS[name].environment.items():
        os.environ[variable] = value
    from bert_tf import cli

    with cli.explained_exit():
        options = cli.read_options(name, sys.argv)
        # From here on there are temporary files to remove.
        _handle_signals(_stop)
        run = registry.runner(name)
        run(options)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell has programs in the background ignore Ctrl-C.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
