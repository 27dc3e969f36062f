"""Exceptions that end a script without a traceback, and helpers for error messages."""

import re
import signal
from collections.abc import Sequence

_EXCERPT_LENGTH = 60


class UserError(ValueError):
    """A mistake that the user can correct, such as a wrong flag, file or checkpoint.

    The message says what is wrong, where, and what to do. Scripts print it on one line, without a
    traceback, and exit with `exit_code`; programs that call the library can catch a `ValueError`.
    """

    exit_code = 1


def reason(error: BaseException) -> str:
    """Returns an error's message on one line, shortened; its type if there is no message."""
    message = " ".join(str(error).split())
    # Remove operation names, which TensorFlow appends.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:.*)?", "", message).strip()
    return message[:200] or type(error).__name__


def shortened(items: Sequence[str], limit: int = 10) -> str:
    """Joins at most `limit` items with commas, and appends "and N more" if there are more."""
    suffix = f" and {len(items) - limit:,} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + suffix


def excerpt(text: str) -> str:
    """Quotes a text on one line, and shortens it if it is long."""
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}...")


def counted(count: int, noun: str) -> str:
    """Formats a count with its noun: `1 row`, `5,574 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class WorkerLost(UserError):
    """A worker of a distributed run was lost; restarting all workers resumes the run."""

    # EX_TEMPFAIL in sysexits.h ("try again"): tells a launcher that a restart can help.
    exit_code = 75


class Terminated(BaseException):
    """Raised to end a script after SIGTERM or SIGHUP; the training loop first saves a checkpoint.

    Like `KeyboardInterrupt`, it is not caught by `except Exception`.
    """

    def __init__(self, signal_number: int = signal.SIGTERM) -> None:
        super().__init__()
        # As a shell reports it for a program that a signal has ended.
        self.exit_code = 128 + signal_number
