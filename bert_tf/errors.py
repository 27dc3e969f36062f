"""The exceptions that end a script without a traceback, and parts of their messages."""

from collections.abc import Sequence


class UserError(ValueError):
    """Something the user can put right: a flag, a file, a checkpoint that does not fit.

    Its message says what is wrong, where, and what to do. The scripts print it on one line
    and exit with `exit_code`, without a traceback; a program that calls the library catches it as
    the `ValueError` that it is.
    """

    exit_code = 1


def reason(error: BaseException) -> str:
    """Returns the message of another library's error on one line, shortened; else its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def shortened(items: Sequence[str], limit: int) -> str:
    """Joins items for a message: at most `limit`, and the number of others."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more


class WorkerLost(UserError):
    """Another process of a distributed run is gone; the same command goes on, in all of them."""

    # EX_TEMPFAIL of sysexits.h, "try again": a launcher can tell it from a mistake.
    exit_code = 75


class Terminated(BaseException):
    """SIGTERM ended a script; a training run has saved a checkpoint first.

    Like `KeyboardInterrupt`, it passes every `except Exception`.
    """

    # What a shell reports for a program that SIGTERM has ended.
    exit_code = 143
