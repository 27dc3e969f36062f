"""Exceptions that end a script without a traceback, and helpers for error messages."""

import re
from collections.abc import Sequence


class UserError(ValueError):
    """A mistake that the user can correct, such as a wrong flag, file or checkpoint.

    The message says what is wrong, where, and what to do. Scripts print it on one line, without a
    traceback, and exit with `exit_code`; programs that call the library can catch a `ValueError`.
    """

    exit_code = 1


def reason(error: BaseException) -> str:
    """Returns an error's message, shortened and on one line, or its type if there is none."""
    message = " ".join(str(error).split())
    # TensorFlow adds the names of its operations.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:.*)?", "", message).strip()
    return message[:200] or type(error).__name__


def shortened(items: Sequence[str], limit: int = 10) -> str:
    """Joins at most `limit` items for a message, and appends the number of the others."""
    suffix = f" and {len(items) - limit:,} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + suffix


class WorkerLost(UserError):
    """A process of a distributed run was lost; restarting all with the same command resumes it."""

    # EX_TEMPFAIL in sysexits.h ("try again"), so that a launcher can tell it from a mistake.
    exit_code = 75


class Terminated(BaseException):
    """Raised to end a script after SIGTERM; a training run has already saved a checkpoint.

    Like `KeyboardInterrupt`, it is not caught by `except Exception`.
    """

    # The exit code that a shell reports for a program that was ended by SIGTERM.
    exit_code = 143
