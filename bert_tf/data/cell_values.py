"""Cells of a user's own table: as texts, and as they are shown in messages."""

import json
import math
from typing import Any

from bert_tf.errors import UserError

_SHOWN_CHARACTERS = 60


def to_text(value: Any, what: str, place: str) -> str:
    """A cell as a text: numbers in JSON as they are written, whole ones without a fraction.

    Args:
        value: of a row's cell.
        what: what it stands for, for messages: "text".
        place: where it stands, for messages.

    Raises:
        UserError: it is nothing, or nothing that can be a text.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{place}: the {what} has half of a character (\\ud800 to \\udfff, alone): "
                "correct or remove the line"
            ) from None
        return value
    if value is None:
        raise UserError(f"{place}: the {what} is missing (null). Correct or remove the line")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(
            f"{place}: the {what} is {value}, which stands for nothing: remove the line"
        )
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    if isinstance(value, int):
        return str(value)
    raise UserError(
        f"{place}: the {what} is {excerpt(json.dumps(value))}. Write it as a text, in quotes"
    )


def excerpt(text: str) -> str:
    """The first characters of a text, on one line."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")
