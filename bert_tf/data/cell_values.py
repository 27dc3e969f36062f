"""Cell values of users' tables: conversion to text or numbers, and formatting for messages."""

import json
import math
import re
from typing import Any

from bert_tf.errors import UserError

_EXCERPT_LENGTH = 60
_NAME = (
    "(text|sentence|question)(_?[12ab])?|body|category|class|comment|content|description|document|"
    "hypothesis|id|index|labels?|message|premise|review|score|sentiment|sms|target|title|tweet"
)
# Common column names.
COLUMN_NAME = re.compile(rf"\s*({_NAME})([ _]({_NAME}))?\s*", re.IGNORECASE)
# Stricter than float(), which also accepts "1_0" and non-ASCII digits.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def to_text(value: Any, name: str, place: str) -> str:
    """Converts a JSON value to text; whole numbers such as 1.0 lose their fraction.

    For messages, `name` is that of the column, such as "text", and `place` the file and line.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            problem = "contains half a character (a lone surrogate)"
            raise UserError(f"{place}: the {name} {problem}. Correct or remove the line") from None
        return value
    if value is None:
        raise UserError(f"{place}: the {name} is missing (null). Correct or remove the line")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return str(value)
    raise UserError(
        f"{place}: the {name} must be a string or a number. Received: {excerpt(json.dumps(value))}"
    )


def parse_number(text: str) -> float | None:
    """Parses a finite number; returns None if the text is not one."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) < float("inf") else None


def excerpt(text: str) -> str:
    """Returns the quoted beginning of a text, on one line."""
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}...")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Formats a count with its noun: `1 row`, `5,574 rows`."""
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
