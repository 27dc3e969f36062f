"""Command-line interface: defines flags from options, prints errors on one line, sets up logging.

This is the only module that imports `absl.flags`. `bert_tf.scripts` uses it for every script.
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

from bert_tf.base import signals
from bert_tf.base.errors import Terminated, UserError, WorkerLost, reason, warn
from bert_tf.base.foreign_names import similar
from bert_tf.base.progress import LogHandler, log, text_wrapper
from bert_tf.base.quiet import import_tensorflow
from bert_tf.options import registry
from bert_tf.options.declare import Affects

# Heading of `--help` -> (affects any of, affects none of). The first match applies, else "Other".
_HEADINGS = {
    "Run": (Affects.RUN, Affects.WEIGHTS),
    "Data": (Affects.DATA, Affects.NOTHING),
    "Model and inputs": (Affects.ROWS | Affects.MODEL | Affects.PATH, Affects.WEIGHTS),
    "Training": (Affects.WEIGHTS | Affects.DURATION, Affects.DEVICES),
    "Results": (Affects.RESULTS, Affects.NOTHING),
    "Devices": (Affects.DEVICES, Affects.NOTHING),
}
_HELP_FLAGS = ("--help", "-help", "--helpfull", "-helpfull", "--helpshort", "-helpshort", "-h")
# Messages of the dynamic linker, the operating system and Python when memory runs out.
_OUT_OF_MEMORY = re.compile("failed to map segment|(?i:cannot allocate memory)|can't start new thr")
# Patterns of absl's messages, and what to print instead.
_ABSL_MESSAGES = (
    (r"flag --(\w+)=(.*): \('Non-boolean.*", r"--\1 must be true or false. Received: \2"),
    (r"flag --(\w+)=(.*): invalid literal for int.*", r"--\1 must be a whole number. Received: \2"),
    (r"flag --(\w+)=(.*): could not convert string.*", r"--\1 must be a number. Received: \2"),
    (r"Missing value for flag (--\w+)", r"\1 has no value. Write \1=value"),
)


@contextlib.contextmanager
def exit_with_message() -> Iterator[None]:
    """Exits if the block fails; reports a user's mistake on one line, without a traceback.

    Exit codes: 1 for a user's mistake, 75 if a worker of a distributed run was lost, 129 after
    SIGHUP (a closed terminal), 130 after Ctrl-C, 143 after SIGTERM. After a run with one of the
    last four, the same command resumes training from the last checkpoint.
    """
    try:
        yield
    except UserError as error:
        # A file name in the message may contain a line break.
        print(f"ERROR: {error}".replace("\n", " "), file=sys.stderr, flush=True)
        if isinstance(error, WorkerLost):
            # At a regular exit, TensorFlow's pool of threads may print a traceback.
            sys.stdout.flush()
            os._exit(error.exit_code)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, Terminated) as error:
        kind = "Terminated" if isinstance(error, Terminated) else "Interrupted"
        print(f"{kind}. {error}".strip(), file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 130))
    except (MemoryError, ImportError, OSError, RuntimeError, SystemError) as error:
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(reason(error)):
            sys.exit(f"ERROR: Not enough memory: pass a smaller batch size ({reason(error)})")
        if not getattr(error, "errno", None):
            raise
        sys.exit(f"ERROR: {reason(error)}")


def read_options(script: str, argv: Sequence[str]) -> Any:
    """Parses and checks the options of a script, then imports TensorFlow; exits for `--help`."""
    entry = registry.SCRIPTS[script]
    if any(argument in _HELP_FLAGS for argument in argv[1:]):
        program = os.path.basename(argv[0])
        with signals.standard_output():
            print(help_text(entry, program), flush=True)
        sys.exit(0)
    options = parse(entry.options_class, argv)
    log.addHandler(LogHandler())
    log.setLevel(logging.DEBUG if getattr(options, "verbose_logging", False) else logging.INFO)
    log.propagate = False
    for field in dataclasses.fields(options):
        if field.metadata["new"] and field.default is None and getattr(options, field.name) == "":
            warn(f"--{field.name} is empty")
    options.check()
    import_tensorflow()
    return options


def parse(options_class: type, argv: Sequence[str]) -> Any:
    """Parses a command line, including `--flagfile`; raises a UserError if it is invalid."""
    values = flags.FlagValues()
    _define_flags(options_class, values)
    values.set_gnu_getopt()
    try:
        positional = values(list(argv))[1:]
    except (flags.Error, OSError, ValueError) as error:
        if isinstance(error, flags.UnrecognizedFlagError):
            close = similar(error.flagname, (name for name in values if len(name) > 1))
            advice = f"Did you mean --{' or --'.join(close)}? " if close else ""
            problem = f"There is no flag --{error.flagname}"
            raise UserError(problem, fix=f"{advice}--help lists all flags") from error
        message = str(error).removeprefix("ERROR:: ")
        for pattern, replacement in _ABSL_MESSAGES:
            message = re.sub(f"^{pattern}$", replacement, message, flags=re.S)
        raise UserError(message) from error
    if positional:
        advice = "Write flags as --name=value, with quotes around a value that has spaces"
        raise UserError(f"Unexpected argument {positional[0]!r}", fix=advice)
    names = [field.name for field in dataclasses.fields(options_class)]
    passed = [name for name in names if values[name].present]  # the others keep their `Default`
    return options_class(**{name: _check_value(name, values[name].value) for name in passed})


def help_text(entry: registry.Script, script: str) -> str:
    """Returns the text of `--help`; marks flags that the original version of a script lacks."""
    wrap = text_wrapper("      ", columns=100)
    program = f"python {script}" if script.endswith(".py") else script
    lines = [entry.description, "", f"usage: {program} --flag=value ... (new: not in the original)"]
    command = text_wrapper("    ", columns=100)
    command.width -= 2  # for backslashes, with which the lines can be copied to a shell
    *first, last = command.wrap(f"example: {program} {entry.example}")
    lines += [*(f"{line} \\" for line in first), last]
    for heading, options in option_groups(entry.options_class).items():
        lines += ["", f"{heading}:"]
        for field in options:
            choices = field.metadata["choices"]
            value = f"={'|'.join(choices)}" if choices else ""
            new = ", new" * (field.metadata["new"] and not field.metadata["required"])
            lines.append(f"  --{field.name}{value} ({describe_default(field)}{new})")
            lines.append(f"      {field.metadata['help']}{describe_range(field)}")
    lines += ["", "  --flagfile=FILE", "      Read flags from a file, one per line."]
    return "\n".join(map(wrap.fill, lines))


def option_groups(options_class: type) -> dict[str, list[dataclasses.Field]]:
    """Returns heading -> options, in the order of `--help`; required options are first."""
    fields = sorted(
        dataclasses.fields(options_class), key=lambda field: not field.metadata["required"]
    )
    groups: dict[str, list[dataclasses.Field]] = {heading: [] for heading in (*_HEADINGS, "Other")}
    for field in fields:
        affected = field.metadata["affects"]
        fits = (
            name for name, (yes, no) in _HEADINGS.items() if affected & yes and not affected & no
        )
        groups[next(fits, "Other")].append(field)
    groups = {heading: options for heading, options in groups.items() if options}
    return groups if len(groups) > 1 else {"Flags": fields}


def describe_default(field: dataclasses.Field) -> str:
    """Describes an option's default, as a value on the command line; says if it is required."""
    if field.metadata["required"]:
        text = field.metadata["help"]
        exception = " with exceptions" if "Not needed" in text else ""
        return "required, or detected" if "by default" in text else f"required{exception}"
    if field.default in (None, ""):
        return "optional"
    is_bool = isinstance(field.default, bool)
    return f"default {str(field.default).lower() if is_bool else field.default}"


def describe_range(field: dataclasses.Field) -> str:
    """Returns " Range: ..." for an option with limits; "" if these only exclude 0 and infinity."""
    lower, upper = field.metadata["limits"] or (0, None)
    if upper is None or 0 < lower < 1e-5:
        return ""
    return f" Range: {lower} or more." if upper >= 2**31 - 1 else f" Range: {lower} to {upper}."


def _check_value(name: str, value: Any) -> Any:
    value = ",".join(value) if isinstance(value, list) else value
    if not isinstance(value, str) or name == "text":  # --text is written back byte for byte.
        return value
    if value.startswith("--"):
        raise UserError(f"--{name} has no value. Write --{name}=value")
    # TensorFlow and JSON files require names in UTF-8.
    if re.search("[\ud800-\udfff]", value):
        raise UserError(f"--{name}={value!r} has bytes that are not UTF-8: rename the file")
    return value


def _define_flags(options_class: type, values: flags.FlagValues) -> None:
    define = {
        str: flags.DEFINE_string,
        bool: flags.DEFINE_boolean,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
    }
    types_by_name = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        arguments: Any = field.name, field.default, field.metadata["help"]
        annotation = types_by_name[field.name]
        if annotation in (float | str, int | str):
            number = flags.IntegerParser() if isinstance(1, annotation) else flags.FloatParser()
            flags.DEFINE(_NumberOrText(number), *arguments, flag_values=values)
            continue
        if field.metadata["repeated"]:
            flags.DEFINE_multi_string(*arguments, flag_values=values)
            continue
        # `str | None` defines a string flag.
        flag_type = next(iter(typing.get_args(annotation)), annotation)
        define[flag_type](*arguments, flag_values=values)


class _NumberOrText(flags.ArgumentParser):
    """Parses a number; keeps other text as it is, which `check_values` checks."""

    def __init__(self, number_parser: Any) -> None:
        self._number_parser = number_parser

    def parse(self, argument: Any) -> Any:
        try:
            return self._number_parser.convert(argument)
        except (TypeError, ValueError):
            return argument
