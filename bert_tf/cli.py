"""Command-line interface: defines flags from options, prints errors on one line, sets up logging.

This is the only module that imports `absl.flags`. `bert_tf.scripts` calls it for every script.
"""

import contextlib
import dataclasses
import logging
import os
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from bert_tf import registry
from bert_tf.declare import DEVICES
from bert_tf.errors import Terminated, UserError, WorkerLost, reason
from bert_tf.progress import LogHandler, log
from bert_tf.quiet import import_tensorflow

# The flags that `--help` lists first, as far as a script has them.
_MAIN_FLAGS = (
    *("task_name", "data_dir", "train_file", "input_file", "text_column", "label_column"),
    *("model_dir", "init_checkpoint", "output_dir", "output_file", "export_dir", "format"),
    *("do_train", "do_eval", "do_predict", "predict_file", "pooling", "max_seq_length"),
    *("num_train_epochs", "num_train_steps", "train_batch_size", "learning_rate"),
)
_HELP_FLAGS = ("--help", "-help", "--helpfull", "-helpfull", "--helpshort", "-helpshort", "-h")


@contextlib.contextmanager
def exit_with_message() -> Iterator[None]:
    """Exits when the block ends; reports a user's mistake on one line, without a traceback.

    Exit codes: 0 for success, 1 for a user's mistake, 75 if a worker of a distributed run was
    lost, 130 after Ctrl-C, 143 after SIGTERM. After a run that ended with 75, 130 or 143, the same
    command resumes training from the last checkpoint.
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
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(reason(error)):
            raise
        advice = "free memory, raise a limit (ulimit -v), or pass a smaller batch size"
        sys.exit(f"ERROR: Not enough memory: {advice} ({reason(error)})")
    sys.exit(0)


def read_options(script: str, argv: Sequence[str]) -> Any:
    """Parses and checks the options of a script, then imports TensorFlow; exits for `--help`."""
    entry = registry.SCRIPTS[script]
    if any(argument in _HELP_FLAGS for argument in argv[1:]):
        program = os.path.basename(argv[0])
        try:
            print(help_text(entry.options_class, program, entry.description), flush=True)
        except BrokenPipeError:
            # The pipe's reader, such as `head`, has exited. Discard what Python writes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    options = parse(entry.options_class, argv)
    _set_up_logging(getattr(options, "verbose_logging", False))
    for field in dataclasses.fields(options):
        if field.metadata["new"] and field.default is None and getattr(options, field.name) == "":
            message = "--%s is empty. Is a shell variable not set?"
            log.warning(message, field.name)
    options.check()
    import_tensorflow()
    return options


# Messages of the dynamic linker, the operating system and Python when memory runs out.
_OUT_OF_MEMORY = re.compile("failed to map segment|(?i:cannot allocate memory)|can't start new thr")


def parse(options_class: type, argv: Sequence[str]) -> Any:
    """Parses a command line, including `--flagfile`; raises a UserError if it is invalid."""
    values = flags.FlagValues()
    _define_flags(options_class, values)
    values.set_gnu_getopt()
    try:
        positional = values(list(argv))[1:]
    except (flags.Error, OSError, ValueError) as error:
        raise UserError(_reword(str(error).removeprefix("ERROR:: "))) from error
    if positional:
        raise UserError(f"Unexpected argument {positional[0]!r}: write flags as --name=value")
    names = [field.name for field in dataclasses.fields(options_class)]
    return options_class(**{name: _check_value(name, values[name].value) for name in names})


# Patterns of absl's messages, and what to print instead.
_ABSL_MESSAGES = (
    (r"flag --(\w+)=(.*): \('Non-boolean.*", r"--\1 must be true or false. Received: \2"),
    (r"flag --(\w+)=(.*): invalid literal for int.*", r"--\1 must be a whole number. Received: \2"),
    (r"flag --(\w+)=(.*): could not convert string.*", r"--\1 must be a number. Received: \2"),
    (
        r"Unknown command line flag '(.+?)'\. Did you mean: (.+) \?",
        r"There is no flag --\1. Did you mean --\2? --help lists all flags",
    ),
    (r"Missing value for flag (--\w+)", r"\1 has no value. Write \1=value"),
    (r"Unknown command line flag '(.+?)'", r"There is no flag --\1. --help lists all flags"),
)


def _reword(message: str) -> str:
    message = re.sub("Did you mean: .+", lambda match: match[0].replace(", ", " or --"), message)
    for pattern, replacement in _ABSL_MESSAGES:
        if re.fullmatch(pattern, message, re.S):
            return re.sub(pattern, replacement, message, flags=re.S)
    return message


def help_text(options_class: type, script: str, description: str) -> str:
    """Returns the text of `--help`; marks flags that the original version of a script lacks."""
    lines = [description, "", f"usage: {script} --flag=value ...", ""]
    for field in ordered_options(options_class):
        if field.metadata["required"]:
            detected = "by default" in field.metadata["help"]
            default = "required, or detected" if detected else "required"
        else:
            default = f"default {field.default!r}" + (", new" if field.metadata["new"] else "")
        choices = field.metadata["choices"]
        value = f"={'|'.join(choices)}" if choices else ""
        lines += [f"  --{field.name}{value} ({default})", f"      {field.metadata['help']}"]
    lines += ["", "  --flagfile=FILE", "      Read flags from a file, one per line."]
    width = shutil.get_terminal_size((100, 24)).columns
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(map(wrap.fill, lines))


def ordered_options(options_class: type) -> list[dataclasses.Field]:
    """Returns the options of a script in the order of `--help`: main first, devices last."""
    main = {name: position for position, name in enumerate(_MAIN_FLAGS)}
    devices = options_class.names(DEVICES)
    return sorted(
        dataclasses.fields(options_class),
        key=lambda field: (
            main.get(field.name, len(main)),
            not field.metadata["required"],
            field.name in devices,
        ),
    )


def _check_value(name: str, value: Any) -> Any:
    if not isinstance(value, str) or name == "text":  # --text is written back byte for byte.
        return value
    if value.startswith("--"):
        raise UserError(f"--{name} has no value: {value} follows it. Write --{name}=value")
    # TensorFlow and JSON files require names in UTF-8.
    if re.search("[\ud800-\udfff]", value):
        raise UserError(f"--{name}={value!r} has bytes that are not UTF-8: rename the file")
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
        if field.metadata["keywords"]:
            flags.DEFINE(_NumberOrKeyword(), *arguments, flag_values=values)
            continue
        annotation = types_by_name[field.name]
        # `str | None` defines a string flag.
        flag_type = next(iter(typing.get_args(annotation)), annotation)
        define[flag_type](*arguments, flag_values=values)


class _NumberOrKeyword(flags.FloatParser):
    """Parses a number; keeps other text as it is, which `check_values` compares with keywords."""

    def convert(self, argument: Any) -> Any:
        try:
            return super().convert(argument)
        except ValueError:
            return argument


def _set_up_logging(verbose: bool) -> None:
    log.addHandler(LogHandler())
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    log.propagate = False
