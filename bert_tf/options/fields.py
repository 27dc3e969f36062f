"""What an option is made of, and which values make sense."""

import dataclasses
import os
import typing
from collections.abc import Collection
from typing import Any

from bert_tf.errors import UserError

# [CLS], one piece, [SEP]: less than this is no text.
_SHORTEST_SEQUENCE = 3


def option(
    default: Any,
    help_text: str,
    *,
    new: bool = False,
    required: bool = False,
    choices: tuple[str, ...] | None = None,
    limits: tuple[float, float] | None = None,
    words: tuple[str, ...] = (),
) -> Any:
    """A field of an options class, with what its flag needs.

    Args:
        default: as in the original.
        help_text: one sentence.
        new: whether the original has no such flag.
        required: whether the script cannot do without.
        choices: the only values.
        limits: the smallest and the largest value.
        words: values of an option that else is a number.
    """
    metadata = {
        "help": help_text,
        "new": new,
        "required": required,
        "choices": choices,
        "limits": limits,
        "words": words,
    }
    return dataclasses.field(default=default, metadata=metadata)


def check_required(options: Any, not_needed: Collection[str] = ()) -> None:
    """Refuses options without a value for what the script cannot do without.

    Args:
        options: of the script.
        not_needed: names of options that it can do without this time.

    Raises:
        UserError: it names all flags that are missing.
    """
    missing = [
        field
        for field in dataclasses.fields(options)
        if field.metadata["required"]
        and field.name not in not_needed
        and not getattr(options, field.name)
    ]
    if missing:
        shown = "; ".join(f"--{field.name} ({field.metadata['help']})" for field in missing)
        raise UserError(f"Required, but not given: {shown}")


def checked(name: str, value: Any, expected: Any) -> Any:
    """Returns the value of an option, a path as str.

    Raises:
        UserError: it is not of the expected type.
    """
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    is_float = isinstance(value, int) and isinstance(1.0, expected)
    is_bool = isinstance(value, bool) and expected not in (bool, bool | None)
    if not (isinstance(value, expected) or is_float) or is_bool:
        shown = getattr(expected, "__name__", str(expected))
        raise UserError(f"{name} must be of type {shown}. Received: {value!r}")
    return value


def check_values(options: Any) -> None:
    """Refuses values of other types, or that make no sense, by the names that the scripts share.

    Raises:
        UserError: it names the flag and its range.
    """
    types = typing.get_type_hints(type(options))
    for field in dataclasses.fields(options):
        name = field.name
        value = checked(f"--{name}", getattr(options, name), types[name])
        choices = field.metadata["choices"]
        if choices:
            if value not in choices:
                raise UserError(f"--{name} must be one of {', '.join(choices)}. Received: {value}")
            continue
        words = field.metadata["words"]
        if words and not (value in words or (isinstance(value, float | int) and value == value)):
            raise UserError(f"--{name} must be a number or {' or '.join(words)}. Received: {value}")
        counts = name.endswith(("_batch_size", "_steps")) and isinstance(value, int)
        counts = counts and not field.metadata["limits"]
        if counts and not 1 <= value < 2**31:
            raise UserError(f"--{name} must be from 1 to {2**31 - 1}. Received: {value}")
        if name in ("learning_rate", "num_train_epochs") and not 0 < value < float("inf"):
            raise UserError(f"--{name} must be a finite number above 0. Received: {value}")
        limits = field.metadata["limits"]
        if limits and not limits[0] <= value <= limits[1]:
            raise UserError(f"--{name} must be from {limits[0]} to {limits[1]}. Received: {value}")
        if name == "max_seq_length" and value < _SHORTEST_SEQUENCE:
            raise UserError(f"--{name} must be at least {_SHORTEST_SEQUENCE}. Received: {value}")
