"""Values of cells in users' tables: conversion to text, and excerpts for messages."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError

_EXCERPT_LENGTH = 60
_NAME = (
    "(text|sentence|question)(_?[12ab])?|body|category|class|comment|content|description|document|"
    "hypothesis|id|index|labels?|message|premise|review|score|sentiment|sms|target|title|tweet"
)
# A common name of a column.
COLUMN_NAME = re.compile(rf"\s*({_NAME})([ _]({_NAME}))?\s*", re.IGNORECASE)
# Not all that float() takes: "1_0" and digits of other scripts are names.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def to_text(value: Any, what: str, place: str) -> str:
    """Converts a JSON value to text: numbers as written, whole ones without a fraction.

    `what` is the cell's meaning, such as "text", and `place` its file and line, for messages.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            found = "half of a character (a lone surrogate)"
            raise UserError(
                f"{place}: the {what} has {found}. Correct or remove the line"
            ) from None
        return value
    if value is None:
        raise UserError(f"{place}: the {what} is missing (null). Correct or remove the line")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return str(value)
    raise UserError(f"{place}: the {what} is {excerpt(json.dumps(value))}. Pass a string")


def parse_number(text: str) -> float | None:
    """Converts a text to a finite number; returns None if it is not one."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) < float("inf") else None


def excerpt(text: str) -> str:
    """Quotes the first characters of a text, on one line."""
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}...")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Formats a number with its noun: `1 row`, `5,574 rows`."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def some(names: Sequence[str], limit: int = 10) -> str:
    """Lists the first names, and says how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")
