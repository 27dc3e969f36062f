"""Declares options: what each of them affects, and which values it may have."""

import dataclasses
import enum
import numbers
import os
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bert_tf.base.errors import UserError

# [CLS], one word piece and [SEP].
_SHORTEST_SEQUENCE = 3
# Separates the parts of a value, see `value_for`.
_SPLIT = re.compile("(?:^|,) *(train|eval|predict):")


class Affects(enum.Flag):
    """What an option affects. All rules for groups of options follow from this.

    | value | a run that resumes | records | a later use of the model |
    |---|---|---|---|
    | `ROWS` | compares it | rewritten | has the same value by default |
    | `WEIGHTS`, `DURATION` | compares it | reused | has the same value by default |
    | `DATA`, `RESULTS` | ignores it | reused | has the same value by default |
    | `MODEL` | ignores it | reused | reports another value |
    | `RUN` | ignores it | reused | cannot have it |
    | `DEVICES` | ignores it | reused | has the script's default |

    Values can be combined. With `--teacher`, options with `ROWS` and `MODEL` must be equal for both
    models. The workers of a run must have equal options, except those that affect nothing else
    than `PATH`.
    """

    # Messages only.
    NOTHING = 0
    # How examples become rows. This is also the default, which is safe: if the option in fact
    # affects less, a run rewrites records, or reports a change, without need.
    ROWS = enum.auto()
    # The weights after a given step, or which of them are the best.
    WEIGHTS = enum.auto()
    # When training ends; users raise it to continue.
    DURATION = enum.auto()
    # Which examples are read, and how their files are parsed. Runs compare digests of the examples.
    DATA = enum.auto()
    # Predictions, metrics and files that are made from the model's outputs.
    RESULTS = enum.auto()
    # The model should always be used with the value that it was trained with.
    MODEL = enum.auto()
    # What this command does, and where.
    RUN = enum.auto()
    # On what, and how, it is computed. Without other values: with the same result.
    DEVICES = enum.auto()
    # The value is a path, which may differ between workers.
    PATH = enum.auto()


NOTHING, ROWS, WEIGHTS = Affects.NOTHING, Affects.ROWS, Affects.WEIGHTS
DURATION, DATA, RESULTS = Affects.DURATION, Affects.DATA, Affects.RESULTS
MODEL, RUN, DEVICES, PATH = Affects.MODEL, Affects.RUN, Affects.DEVICES, Affects.PATH


class DefaultInt(int):
    """A default that a model's folder may replace, unlike an equal value that was passed."""


class DefaultStr(str):
    """Like `DefaultInt`, for texts."""


class Options:
    """Base class of options classes, which are frozen dataclasses.

    `class XOptions(Options, affects=DATA)` sets what its own options affect if they do not say it.
    """

    def __init_subclass__(cls, affects: Affects = ROWS, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for field in vars(cls).values():
            if isinstance(field, dataclasses.Field) and field.metadata["affects"] is None:
                field.metadata = types.MappingProxyType({**field.metadata, "affects": affects})

    def __post_init__(self) -> None:
        types = typing.get_type_hints(type(self))
        for field in dataclasses.fields(typing.cast(Any, self)):
            name = field.name
            choices = field.metadata["choices"]
            value = _to_flag(f"--{name}", getattr(self, name), types[name], choices)
            # Shells do not expand the ~ in --output_dir=~/run. --text is written back as it is.
            if isinstance(value, str) and value.startswith("~/") and name != "text":
                value = os.path.expanduser(value)
            object.__setattr__(self, name, value)

    @staticmethod
    def task_of(flags: Mapping[str, Any]) -> str:
        """Returns the task that flags name, such as MRPC; "" if the script has only one."""
        return ""

    @staticmethod
    def is_same_task(one: str, other: str) -> bool:
        """Returns whether a model for one task of the script may be used for another one."""
        return os.path.basename(one).lower() == os.path.basename(other).lower()

    @classmethod
    def complete(
        cls, flags: dict[str, Any], passed: Mapping[str, Any], folder: Any
    ) -> dict[str, Any]:
        """Returns the flags for using a model: those of its training run in `folder`, and `passed`.

        Raises:
            UserError: the folder lacks something that a flag refers to.
        """
        return {**flags, **passed}

    def check_folder(self, folder: Any) -> Iterable[str]:
        """Yields a sentence for each flag that does not fit the model in a `RunFolder`."""
        return ()

    @property
    def task(self) -> str:
        """The task that the options name; "" if the script has only one."""
        return self.task_of(vars(self))

    @classmethod
    def names(cls, affects: Affects, without: Affects = NOTHING) -> list[str]:
        """Lists the options that affect any of `affects`, and none of `without`."""
        fields = dataclasses.fields(typing.cast(Any, cls))
        found = {field.name: field.metadata["affects"] for field in fields}
        return [n for n, affected in found.items() if affected & affects and not affected & without]

    def values(self, affects: Affects, without: Affects = NOTHING) -> dict[str, Any]:
        """Returns name -> value of the options that `names` lists."""
        return {name: getattr(self, name) for name in self.names(affects, without)}


def option(
    default: Any,
    help_text: str,
    *,
    affects: Affects | None = None,
    new: bool = False,
    required: bool = False,
    choices: tuple[str, ...] | None = None,
    by_split: bool = False,
    limits: tuple[float, float] | None = None,
    keywords: tuple[str, ...] = (),
    repeated: bool = False,
) -> Any:
    """Declares an option: a field of an options class.

    Args:
        default: default value; that of the original BERT script if it has the flag.
        help_text: text for --help.
        affects: what the option affects; by default, as its class says.
        new: whether the original script has no such flag.
        required: whether the flag must be passed.
        choices: allowed values.
        by_split: whether the value may differ between splits, see `value_for`.
        limits: lowest and highest allowed value.
        keywords: strings that are allowed in addition to numbers.
        repeated: whether the flag may be passed several times; commas then join its values.
    """
    metadata = {
        "help": help_text,
        "affects": affects,
        "new": new,
        "required": required,
        "choices": choices,
        "by_split": by_split,
        "limits": limits,
        "keywords": keywords,
        "repeated": repeated,
    }
    return dataclasses.field(default=default, metadata=metadata)


def value_for(value: str, split: str) -> str:
    """Returns the part of a value for a split: "b" for "predict" if it is `a,predict:b`."""
    common, *others = _SPLIT.split(value)
    return dict(zip(others[::2], others[1::2], strict=True)).get(split, common)


def check_required(options: Any, not_needed: Collection[str] = (), first: str = "") -> None:
    """Raises a UserError: `first`, and the unset required flags, except `not_needed`."""
    missing = [first] * bool(first) + [
        f"--{field.name} ({field.metadata['help']})"
        for field in dataclasses.fields(options)
        if field.metadata["required"] and not getattr(options, field.name)
        if field.name not in not_needed
    ]
    if missing:
        raise UserError(f"Missing required flags: {'; '.join(missing)}")


def _to_flag(name: str, value: Any, expected: Any, choices: Collection[str] | None = None) -> Any:
    """Converts paths and NumPy's numbers; if an option is text, also mappings, lists, numbers."""
    if expected is bool and isinstance(value, DefaultInt):
        return bool(value)
    if isinstance(value, bool) and "true" in (choices or ()):
        return str(value).lower()
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, numbers.Number) and (item := getattr(value, "item", None)):
        value = item()  # a number of NumPy
    if isinstance(value, str | bool) or expected not in (str, str | None):
        return value
    if to_list := getattr(value, "tolist", None):  # an array of NumPy
        value = to_list()
    if isinstance(value, Mapping):
        names = _to_flag(name, [*value], str).split(",")
        value = [f"{label}:{number}" for label, number in zip(names, value.values(), strict=True)]
    if not isinstance(value, list | tuple):
        return str(value) if isinstance(value, int | float) else value
    items = [str(item).lower() if isinstance(item, bool) else str(item) for item in value]
    if commas := [item for item in items if "," in item]:
        raise UserError(
            f"{name}: {commas[0]!r} has a comma, which separates items", fix="Rename it"
        )
    return ",".join(items)


def check_type(name: str, value: Any, expected: Any, choices: Collection[str] | None = None) -> Any:
    """Returns an option's value, see `_to_flag`; raises a UserError if its type is wrong."""
    value = _to_flag(name, value, expected, choices)
    is_int_for_float = isinstance(value, int) and isinstance(1.0, expected)
    is_unexpected_bool = isinstance(value, bool) and expected not in (bool, bool | None)
    if not (isinstance(value, expected) or is_int_for_float) or is_unexpected_bool:
        type_name = next(iter(typing.get_args(expected)), expected).__name__
        raise UserError(f"{name} must be of type {type_name}. Received: {value!r}")
    return value


def check_values(options: Any) -> None:
    """Raises a UserError for a value that its field's type, metadata or name forbids."""
    types = typing.get_type_hints(type(options))
    for field in dataclasses.fields(options):
        name = field.name
        value = check_type(f"--{name}", getattr(options, name), types[name])
        choices, limits = field.metadata["choices"], field.metadata["limits"]
        keywords, expected = field.metadata["keywords"], ""
        is_number = isinstance(value, float | int) and value == value  # False for NaN
        if name.endswith(("_batch_size", "_steps")) and isinstance(value, int):
            limits = limits or (1, 2**31 - 1)
        values = _SPLIT.split(str(value))[::2] if field.metadata["by_split"] and value else [value]
        if choices and not {*values} <= {*choices}:
            expected = f"one of {', '.join(choices)}"
        elif keywords and not (value in keywords or is_number):
            expected = f"a number or {' or '.join(keywords)}"
        elif name == "num_train_epochs" and not 0 < value < float("inf"):
            expected = "a finite number above 0"
        elif limits and not isinstance(value, str) and not limits[0] <= value <= limits[1]:
            expected = f"between {limits[0]} and {limits[1]}"
        elif (
            name == "max_seq_length" and int(value) < _SHORTEST_SEQUENCE and value != field.default
        ):
            expected = f"at least {_SHORTEST_SEQUENCE}"
        if expected:
            raise UserError(f"--{name} must be {expected}. Received: {value}")
