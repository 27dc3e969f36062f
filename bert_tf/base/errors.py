"""Errors and warnings: what is wrong, where, and what to do; helpers for their texts."""

import contextlib
import copy
import logging
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

log = logging.getLogger("bert_tf")

_EXCERPT_LENGTH, _NAME_LENGTH = 60, 30
# What TensorFlow adds to a message: names of operations, tracebacks and hints for programmers.
_OF_TENSORFLOW = (
    r"Graph execution error:.*?(Node: '\S*'|<stack traces unavailable>)|(\[\[)?\{\{.*?\}\}(\]\])?"
    r"|\[Op:.*?\]( name:.*)?|(defined at |Hint: If you want |Original stack trace ).*"
)
_SINGULAR = {"are": "is", "were": "was", "have": "has", "do": "does", "contain": "contains"}
_SINGULAR |= {"lack": "lacks", "fit": "fits"}


class Words:
    """How messages name places and flags: by default, as in scripts; `speaking` changes it."""

    def place(self, place: "Place") -> str:
        """Returns the name of a place in a file."""
        if place.is_element:
            return f"{place.file}: element {place.line}"
        return f"{place.file}:{place.line}" if place.line else place.file

    def text(self, text: str) -> str:
        """Rewrites the flags in a problem or a fix, which code always writes as `--name`."""
        return text

    def join(self, problem: str, at: "Where | None" = None, fix: str | None = None) -> str:
        """Joins the parts of a message; see `UserError`."""
        where = self.place(at if isinstance(at, Place) else Place(str(at)))
        text = self.text(problem) if at is None else f"{where}: {self.text(problem)}"
        return f"{text}. {self.text(fix)}" if fix else text


_SCRIPT = Words()
_words: ContextVar[Words] = ContextVar("words", default=_SCRIPT)
_told: ContextVar[set[str] | None] = ContextVar("told", default=None)
_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)


class Place(NamedTuple):
    """A line of a user's file, or an element of a JSON list.

    `line` is counted from 1; 0 stands for the whole file. `str` returns the name that the current
    `Words` give to the place, such as "train.tsv:1842".
    """

    file: str
    line: int = 0
    is_element: bool = False

    def __str__(self) -> str:
        return _words.get().place(self)


class Input(NamedTuple):
    """An input of a prediction, or a row that a program passed. `index` is counted from 0."""

    index: int
    unit: str = "Input"

    def __str__(self) -> str:
        return f"{self.unit} {self.index}"


Where = Place | Input | str  # a path, or the name of a flag


class UserError(ValueError):
    """A mistake that the user can correct, such as a wrong flag, file or checkpoint.

    Scripts print it on one line, without a traceback, and exit with `exit_code`; programs that call
    the library can catch a `ValueError`.

    Attributes:
        problem: what is wrong.
        at: where: a `Place`, an `Input`, the path of a file or the name of a flag; None if
            `problem` says where.
        fix: what to do, in one sentence without a period; None if `problem` suggests it.
    """

    exit_code = 1

    def __init__(
        self, problem: str = "", *, at: Where | None = None, fix: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem, self.at, self.fix = problem, at, fix
        self._words = _words.get()

    def __str__(self) -> str:
        return self._words.join(self.problem, self.at, self.fix)

    def moved_to(self, at: Where) -> "UserError":
        """Returns a copy of the error for another place."""
        error = copy.copy(self)
        error.at = at
        return error


def warn(problem: str, *, at: Where | None = None, fix: str | None = None) -> None:
    """Logs a warning, with the parts of a `UserError`; within `telling_once`, logs it only once."""
    _log(logging.WARNING, _words.get().join(problem, at, fix))


def note(text: str, *, at: Where | None = None) -> None:
    """Logs a line of information."""
    _log(logging.INFO, _words.get().join(text, at))


def _log(level: int, text: str) -> None:
    told = _told.get()
    if _is_silent.get() or text in (told or ()):
        return
    log.log(level, "%s", text, stacklevel=3)
    if told is not None and level == logging.WARNING:
        told.add(text)


@contextlib.contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def speaking(words: Words) -> Any:
    """Returns a context in which messages name places and flags in these words."""
    return _set(_words, words)


def telling_once() -> Any:
    """Returns a context, such as that of a run, in which each warning is logged only once."""
    return _set(_told, set() if _told.get() is None else _told.get())


def silent() -> Any:
    """Returns a context in which `warn` and `note` do nothing."""
    return _set(_is_silent, True)


def reason(error: BaseException) -> str:
    """Returns an error's message on one line, shortened; its type if there is no message."""
    message = re.sub(_OF_TENSORFLOW, "", " ".join(str(error).split()))
    return " ".join(message.split())[:200] or type(error).__name__


def shortened(items: Sequence[str], limit: int = 10) -> str:
    """Joins at most `limit` items with commas, and appends "and N more" if there are more."""
    suffix = f" and {len(items) - limit:,} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + suffix


def brief(names: Iterable[str]) -> list[str]:
    """Puts each name, such as a label, on one line, and cuts off the end of a long one."""
    lines = (" ".join(name.split()) for name in names)
    return [x if len(x) <= _NAME_LENGTH else f"{x[:_NAME_LENGTH]}..." for x in lines]


def excerpt(text: str) -> str:
    """Quotes a text on one line, and shortens it if it is long."""
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}...")


def counted(count: int, noun: str, text: str = "", of: int | None = None) -> str:
    """Formats a count and its noun, followed by a text that begins with a verb in the plural.

    Examples: `2 rows`, `1 of 2 rows has ...`. If `count` is 1, the verbs in `_SINGULAR` become
    singular at the beginning of the text, and after parentheses, "and" or "but".
    """
    if count == 1:
        verbs = rf"(^(?:\(.*?\) )?| and | but )({'|'.join(_SINGULAR)})\b"
        text = re.sub(verbs, lambda match: match[1] + _SINGULAR[match[2]], text)
    number = f"{count:,}" if of is None else f"{count:,} of {of:,}"
    return f"{number} {noun}{'' if (of or count) == 1 else 's'} {text}".strip()


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
        # The code that a shell reports for a program that was ended by a signal.
        self.exit_code = 128 + signal_number
