"""The command line: flags from options, errors on one line, and logging.

The only module that imports `absl.flags`. `bert_tf.scripts` calls it for every script.
"""

import contextlib
import dataclasses
import logging
import os
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from bert_tf import registry
from bert_tf.errors import Terminated, UserError, reason
from bert_tf.options.shared import DeviceOptions
from bert_tf.quiet import import_tensorflow

_HELP_FLAGS = ("--help", "-help", "--helpfull", "-helpfull", "--helpshort", "-helpshort", "-h")


@contextlib.contextmanager
def explained_exit() -> Iterator[None]:
    """Exits after the block, with one line instead of a traceback for a user's mistake.

    Exit codes: 0 for success; 1 for a user's mistake; 75 if another worker of a distributed run is
    gone; 130 after Ctrl-C and 143 after SIGTERM. After the last three, the same command resumes a
    training from its checkpoint.
    """
    try:
        yield
    except UserError as error:
        # A file name may contain a line break; an error is one line anyway.
        print(f"ERROR: {error}".replace("\n", " "), file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, Terminated) as end:
        kind = "Terminated" if isinstance(end, Terminated) else "Interrupted"
        print(f"{kind}. {end}".strip(), file=sys.stderr)
        sys.exit(getattr(end, "exit_code", 130))
    except (MemoryError, ImportError, OSError, RuntimeError, SystemError) as error:
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(reason(error)):
            raise
        advice = "free some, raise a limit (ulimit -v), or pass a smaller batch size"
        sys.exit(f"ERROR: Not enough memory: {advice} ({reason(error)})")
    sys.exit(0)


def read_options(script: str, argv: Sequence[str]) -> Any:
    """Reads and checks the options of a script, and imports TensorFlow; `--help` exits."""
    entry = registry.SCRIPTS[script]
    if any(argument in _HELP_FLAGS for argument in argv[1:]):
        program = os.path.basename(argv[0])
        try:
            print(help_text(entry.options_class, program, entry.description), flush=True)
        except BrokenPipeError:
            # `| head` has read enough. Python would write the rest again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    options = parse(entry.options_class, argv)
    _set_up_logging(getattr(options, "verbose_logging", False))
    options.check()
    _check_address_space()
    import_tensorflow()
    return options


# Messages of Python, the dynamic linker and TensorFlow.
_OUT_OF_MEMORY = re.compile("failed to map segment|(?i:cannot allocate memory)|can't start new thr")
# TensorFlow needs this to start and to compile a small model.
_LEAST_ADDRESS_SPACE = 3e9


def _check_address_space() -> None:
    with contextlib.suppress(ImportError):  # Windows has no such limit.
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if 0 <= limit < _LEAST_ADDRESS_SPACE:  # -1 stands for none.
            warning = "The address space (ulimit -v) is %.1f GB. TensorFlow may crash below 3 GB"
            logging.getLogger("bert_tf").warning(warning, limit / 1e9)


def parse(options_class: type, argv: Sequence[str]) -> Any:
    """Parses a command line, including `--flagfile`; raises a UserError if it is invalid."""
    values = flags.FlagValues()
    _define_flags(options_class, values)
    values.set_gnu_getopt()
    try:
        rest = values(list(argv))[1:]
    except (flags.Error, OSError, ValueError) as error:
        raise UserError(_reworded(str(error).removeprefix("ERROR:: "))) from error
    if rest:
        raise UserError(f"Unexpected argument {rest[0]!r}: flags are written --name=value")
    names = [field.name for field in dataclasses.fields(options_class)]
    return options_class(**{name: _checked(name, values[name].value) for name in names})


# Patterns of absl's messages, and our wording.
_MESSAGES_OF_ABSL = (
    (r"flag --(\w+)=(.*): \('Non-boolean.*", r"--\1 must be true or false. Received: \2"),
    (r"flag --(\w+)=(.*): invalid literal for int.*", r"--\1 must be a whole number. Received: \2"),
    (r"flag --(\w+)=(.*): could not convert string.*", r"--\1 must be a number. Received: \2"),
    (
        r"Unknown command line flag '(.+?)'\. Did you mean: (.+) \?",
        r"There is no flag --\1. Did you mean --\2? --help lists all",
    ),
    (r"flag --(\w+)=(.*): it must be (.*)", r"--\1 must be \3. Received: \2"),
    (r"Missing value for flag (--\w+)", r"\1 has no value. Write \1=value"),
    (r"Unknown command line flag '(.+?)'", r"There is no flag --\1. --help lists all"),
)


def _reworded(message: str) -> str:
    guesses = re.search(r"Did you mean: (.+) \?$", message)
    if guesses:
        dashed = " or --".join(guesses[1].split(", "))
        message = message.replace(guesses[0], f"Did you mean: {dashed} ?")
    for pattern, words in _MESSAGES_OF_ABSL:
        if re.fullmatch(pattern, message, re.S):
            return re.sub(pattern, words, message, flags=re.S)
    return message


def help_text(options_class: type, script: str, description: str) -> str:
    """Returns the text of `--help`: each flag with its default; `new` if the original lacks it."""
    lines = [description, "", f"usage: {script} --flag=value ...", ""]
    for field in ordered_options(options_class):
        if field.metadata["required"]:
            default = "required"
        else:
            default = f"default {field.default!r}" + (", new" if field.metadata["new"] else "")
        choices = field.metadata["choices"]
        value = f"={'|'.join(choices)}" if choices else ""
        lines += [f"  --{field.name}{value} ({default})", f"      {field.metadata['help']}"]
    lines += ["", "  --flagfile=FILE", "      Read flags from a file, one a line."]
    return "\n".join(lines)


def ordered_options(options_class: type) -> list[dataclasses.Field]:
    """Returns the options of a script as `--help` lists them: required ones first, devices last."""
    devices = {field.name for field in dataclasses.fields(DeviceOptions)}
    return sorted(
        dataclasses.fields(options_class),
        key=lambda field: (not field.metadata["required"], field.name in devices),
    )


def _checked(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("--"):
        raise UserError(f"--{name} has no value: {value} follows it. Write --{name}=value")
    # TensorFlow and JSON files require UTF-8 names; a text comes back as it was.
    if name != "text" and re.search("[\ud800-\udfff]", value):
        raise UserError(f"--{name}={value!r} has bytes that are not UTF-8: rename that file")
    # Shells do not expand the ~ in --output_dir=~/run.
    return os.path.expanduser(value) if value.startswith("~/") else value


def _define_flags(options_class: type, values: flags.FlagValues) -> None:
    define = {
        str: flags.DEFINE_string,
        bool: flags.DEFINE_boolean,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
    }
    types_by_name = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        arguments = field.name, field.default, field.metadata["help"]
        if field.metadata["words"]:
            parser = _NumberOrWord(field.metadata["words"])
            flags.DEFINE(parser, *arguments, flag_values=values)
            continue
        kind = types_by_name[field.name]
        # The first of `str | None`.
        define[next(iter(typing.get_args(kind)), kind)](*arguments, flag_values=values)


class _NumberOrWord(flags.FloatParser):
    """A number, or one of some words."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self._words = words
        self.syntactic_help = f"a number or {' or '.join(words)}"

    def convert(self, argument: Any) -> Any:
        if argument in self._words:
            return argument
        try:
            return super().convert(argument)
        except ValueError as error:
            raise ValueError(f"it must be {self.syntactic_help}") from error


def _set_up_logging(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_MessageFormatter())
    logger = logging.getLogger("bert_tf")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


class _MessageFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return f"{record.levelname}: {message}" if record.levelno >= logging.WARNING else message
