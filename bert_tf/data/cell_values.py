"""Converts cell values of users' tables to text or numbers, and formats them for messages."""

import json
import math
import re
from typing import Any

from bert_tf.errors import UserError

_EXCERPT_LENGTH = 60
_COMMON_WORD = (
    "(text|sentence|question)(_?[12ab])?|body|category|class|comment|content|description|document|"
    "hypothesis|id|index|labels?|message|premise|review|score|sentiment|sms|target|title|tweet"
)
# Common column names: one or two of these words, such as "text_a" or "Review Title".
COLUMN_NAME = re.compile(rf"\s*({_COMMON_WORD})([ _]({_COMMON_WORD}))?\s*", re.IGNORECASE)
# Stricter than float(), which also accepts "1_0" and non-ASCII digits.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def to_text(value: Any, name: str, place: str) -> str:
    """Converts a cell, which in JSON may be a number or boolean, to text; 1.0 becomes "1".

    Error messages contain `name` (what the cell holds, such as "text") and `place` (file, line).
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
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise UserError(
        f"{place}: the {name} must be a string or a number. Received: {excerpt(json.dumps(value))}"
    )


def parse_number(text: str) -> float | None:
    """Parses a finite decimal number; returns None for any other text."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) < float("inf") else None


def excerpt(text: str) -> str:
    """Quotes a text on one line for a message, and shortens it if it is long."""
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}...")


def counted(count: int, noun: str) -> str:
    """Formats a count with its noun: `1 row`, `5,574 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
