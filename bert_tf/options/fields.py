"""Declares options and validates their values."""

import dataclasses
import os
import typing
from collections.abc import Collection
from typing import Any

from bert_tf.errors import UserError

# [CLS], one word piece and [SEP].
_SHORTEST_SEQUENCE = 3


def option(
    default: Any,
    help_text: str,
    *,
    new: bool = False,
    required: bool = False,
    choices: tuple[str, ...] | None = None,
    limits: tuple[float, float] | None = None,
    keywords: tuple[str, ...] = (),
) -> Any:
    """Declares an option: a field of an options class.

    Args:
        default: default value; that of the original BERT script if it has the flag.
        help_text: text for --help.
        new: whether the original script has no such flag.
        required: whether the flag must be passed.
        choices: allowed values.
        limits: lowest and highest allowed value.
        keywords: strings that are allowed in addition to numbers.
    """
    metadata = {
        "help": help_text,
        "new": new,
        "required": required,
        "choices": choices,
        "limits": limits,
        "keywords": keywords,
    }
    return dataclasses.field(default=default, metadata=metadata)


def check_required(options: Any, not_needed: Collection[str] = ()) -> None:
    """Raises a UserError that lists the required flags without a value, except `not_needed`."""
    missing = [
        f"--{field.name} ({field.metadata['help']})"
        for field in dataclasses.fields(options)
        if field.metadata["required"] and not getattr(options, field.name)
        if field.name not in not_needed
    ]
    if missing:
        raise UserError(f"Missing required flags: {'; '.join(missing)}")


def check_type(name: str, value: Any, expected: Any) -> Any:
    """Returns an option's value, a path as str; raises a UserError for any other type."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
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
        if choices and value not in choices:
            expected = f"one of {', '.join(choices)}"
        elif keywords and not (value in keywords or is_number):
            expected = f"a number or {' or '.join(keywords)}"
        elif name in ("learning_rate", "num_train_epochs") and not 0 < value < float("inf"):
            expected = "a finite number above 0"
        elif limits and not limits[0] <= value <= limits[1]:
            expected = f"between {limits[0]} and {limits[1]}"
        elif name == "max_seq_length" and value < _SHORTEST_SEQUENCE and value != field.default:
            expected = f"at least {_SHORTEST_SEQUENCE}"
        if expected:
            raise UserError(f"--{name} must be {expected}. Received: {value}")
