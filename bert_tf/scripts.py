"""Main functions of the scripts, by name: `from bert_tf.scripts import run_classifier`.

This module imports next to nothing, so that Ctrl-C and other signals end a script with one line
even while it is importing TensorFlow.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

from bert_tf.base.errors import Terminated, log, telling_once
from bert_tf.base.signals import handle_signals, preserve_signal_handlers
from bert_tf.options import registry


def __getattr__(name: str) -> Callable[[], None]:
    if name not in registry.SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_main, name)


def names_of_original(script: str) -> Callable[[str], Any]:
    """Returns a script's `__getattr__`, for programs that import names of the original's script."""

    def getattr_of_script(name: str) -> Any:
        original = import_module(f"bert_tf.compat.{script}")
        if name == "__all__":
            return [public for public in vars(original) if not public.startswith("_")]
        return getattr(original, name)

    return getattr_of_script


def _main(name: str) -> None:
    try:
        os.write(2, b"")
    except OSError:  # closed (2>&-), or a full device: run without a log
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
    # A copy of stderr: while TensorFlow is imported, file descriptor 2 is redirected.
    stderr, environment = os.dup(2), registry.SCRIPTS[name].environment

    def exit_now(signal_number: int, frame: FrameType | None) -> None:
        # Exit without an exception, which the module that is being imported might swallow.
        is_interrupt = signal_number == signal.SIGINT
        os.write(stderr, b"Interrupted.\n" if is_interrupt else b"Terminated.\n")
        os._exit(128 + signal_number)

    with contextlib.ExitStack() as stack:
        # The process may go on after the script, as with `%run` in a notebook: restore it.
        stack.callback(os.close, stderr)
        stack.callback(os.environ.update, {**os.environ})
        for variable in (*environment, "KERAS_HOME"):
            stack.callback(os.environ.pop, variable, None)
        for attribute in ("handlers", "propagate"):
            stack.callback(setattr, log, attribute, copy(getattr(log, attribute)))
        stack.callback(log.setLevel, log.level)
        stack.enter_context(preserve_signal_handlers())
        handle_signals(exit_now)
        os.environ.update(environment)
        try:
            from bert_tf.options import cli

            stack.enter_context(cli.exit_with_message())
            options = cli.read_options(name, sys.argv)
        except ModuleNotFoundError as error:
            sys.exit(
                f"ERROR: {sys.executable} has no module {error.name}: activate the environment in "
                "which bert_tf is installed (. .venv/bin/activate), or install it (pip install .)"
            )
        # From here on, exceptions let the script remove its temporary files.
        handle_signals(_raise)
        with telling_once():
            registry.get_runner(name)(options)


def _raise(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if signal_number == signal.SIGINT else Terminated(signal_number)
