"""Labels of a user's own texts: what they are, and what stands in a cell."""

import difflib
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.data.cell_values import excerpt, to_text
from bert_tf.data.datasets import CLASSIFICATION, MULTILABEL, REGRESSION
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

AUTO = "auto"
PROBLEM_TYPES = (AUTO, CLASSIFICATION, MULTILABEL, REGRESSION)

_SHOWN_LABELS = 10
# More labels that mostly occur once are hardly classes; in small files, more than half of the rows.
_MANY_LABELS, _FEW_LABELS = 50, 8
# Not what float() takes: "1_0" and digits of other scripts are names.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# What programs and people write where a number is missing.
_MISSING = {"", "nan", "inf", "-inf", "infinity", "n/a", "na", "null", "none", "?", "-"}

Cell = tuple[str, Any]
"""Where a label stands, for messages, and what stands there."""


def parse_number(text: str) -> float | None:
    """The finite number that a text is; None if it is none."""
    number = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return number if abs(number) < float("inf") else None


def is_missing_number(text: str) -> bool:
    """Whether a text is a usual mark of a number that is not there, such as `nan` or `?`."""
    return text.lower() in _MISSING


def split_labels(text: str, separator: str) -> list[str]:
    """The labels of a cell, each once; none for an empty one."""
    parts = (part.strip() for part in text.split(separator))
    return list(dict.fromkeys(part for part in parts if part))


@dataclass(frozen=True)
class LabelParser:
    """Reads cells with labels.

    Attributes:
        problem_type: of `datasets`.
        labels: those that there are, in the order of their ids; none for a regression.
        separator: between the labels of a cell that may have several.
    """

    problem_type: str
    labels: tuple[str, ...] = ()
    separator: str = ","

    def read(self, value: Any, place: str) -> Any:
        """The label of an example: a text; a tuple of them, in the order of `labels`, for several.

        Raises:
            UserError: as `names`; or it is not one of the labels.
        """
        names = self.names(value, place)
        if self.problem_type == REGRESSION:
            return names[0]
        for name in names:
            if name not in self.labels:
                raise UserError(self._unknown(name, place))
        if self.problem_type == MULTILABEL:
            return tuple(label for label in self.labels if label in names)
        return names[0]

    def names(self, value: Any, place: str) -> list[str]:
        """What stands in a cell, whether it is one of the labels or not.

        Raises:
            UserError: it is no label, or several where one is needed; or no number, for a
                regression.
        """
        if self.problem_type == MULTILABEL:
            return self._several(value, place)
        if isinstance(value, list):
            raise UserError(
                f"{place}: a list of labels, but one is needed. Pass --problem_type=multilabel if "
                "a text can have several"
            )
        name = to_text(value, "label", place).strip()
        if self.problem_type == REGRESSION and parse_number(name) is None:
            raise UserError(_no_number(name, place))
        if not name:
            raise UserError(f"{place}: the label is empty. Correct or remove the line")
        return [_on_one_line(name, place)]

    def _several(self, value: Any, place: str) -> list[str]:
        if isinstance(value, list):
            parts = [to_text(part, "label", place).strip() for part in value]
            if "" in parts:
                raise UserError(f"{place}: a label in the list is empty. Correct the line")
            names = list(dict.fromkeys(parts))
        else:
            names = split_labels(to_text(value, "label", place), self.separator)
        return [_on_one_line(name, place) for name in names]

    def _unknown(self, name: str, place: str) -> str:
        close = difflib.get_close_matches(name, self.labels, n=1)
        guess = f" Did you mean {close[0]}?" if close else ""
        return (
            f"{place}: label {excerpt(name)} is not one of {_some(self.labels)}.{guess} "
            f"{_advice(place)}"
        )


def infer_labels(
    path: str,
    cells: Sequence[Cell],
    problem_type: str = AUTO,
    labels: Sequence[str] = (),
    separator: str = ",",
) -> LabelParser:
    """Finds out what the labels of a training file are, and logs it.

    Args:
        path: of the file, for messages.
        cells: the labels of all rows.
        problem_type: one of `PROBLEM_TYPES`.
        labels: those that there may be; none to take those of the file: numbers in their order if
            all are whole ones, otherwise in that of the alphabet.
        separator: between the labels of a cell that may have several.

    Raises:
        UserError: a label is wrong, or there is nothing to learn.
    """
    if problem_type == AUTO:
        problem_type = _problem_type(cells, bool(labels))
    reader = LabelParser(problem_type, tuple(labels), separator)
    read = reader.read if labels else reader.names
    counts: Counter[str] = Counter()
    most = 0
    for place, value in cells:
        names = read(value, place)
        counts.update([names] if isinstance(names, str) else names)
        most = max(most, 1 if isinstance(names, str) else len(names))
    if problem_type == MULTILABEL and most < 2:
        message = "%s: multilabel, but no row has two labels. Is --label_separator=%s right?"
        _logger.warning(message, path, separator)
    if problem_type == REGRESSION:
        numbers = [float(name) for name in counts]
        kinds = f"numbers from {min(numbers):g} to {max(numbers):g}"
    else:
        reader = LabelParser(problem_type, tuple(labels) or _in_order(counts), separator)
        _require_something_to_learn(path, reader, counts, len(cells))
        found = [f"{label} ({counts[label]:,})" for label in reader.labels]
        number = "1 label" if len(found) == 1 else f"{len(found)} labels"
        kinds = f"{number}: {_some(found)}"
    _logger.info("%s: %s; %s with %s", path, count_rows(len(cells)), problem_type, kinds)
    return reader


def count_rows(number: int) -> str:
    """Rows in words, `5,574 rows`."""
    return "1 row" if number == 1 else f"{number:,} rows"


def _problem_type(cells: Sequence[Cell], has_labels: bool) -> str:
    """What the labels of a file say that they are for.

    Whole numbers beside names are classes; beside marks of missing numbers they are not, or `nan`
    would become a class of its own.

    Raises:
        UserError: they are numbers, and some are none; or numbers with decimal commas.
    """
    if any(isinstance(value, list) for _, value in cells):
        return MULTILABEL
    if has_labels:
        return CLASSIFICATION
    texts = [_shown(value) for _, value in cells]
    numbers = [parse_number(text) for text in texts]
    known = [number for number in numbers if number is not None]
    if len(known) <= len(cells) / 2:
        _refuse_decimal_commas(cells, texts)
        return CLASSIFICATION
    wrong = [row for row, number in enumerate(numbers) if number is None]
    if all(number.is_integer() for number in known):
        wrong = [row for row in wrong if is_missing_number(texts[row])]
        kind = CLASSIFICATION
    else:
        kind = REGRESSION
    if wrong:
        raise UserError(_stray(cells[wrong[0]][0], texts[wrong[0]], texts))
    return kind


def _stray(place: str, name: str, names: Sequence[str]) -> str:
    examples = ", ".join(dict.fromkeys(other for other in names if parse_number(other) is not None))
    # An empty cell cannot be a class either.
    choice = "; if it is a label, pass --problem_type=classification" if name else ""
    return (
        f"{place}: label {excerpt(name)} is not a number, but most labels are "
        f"({excerpt(examples)}).{_point(name)} {_advice(place)}{choice}"
    )


def _refuse_decimal_commas(cells: Sequence[Cell], names: Sequence[str]) -> None:
    """Refuses labels of which most are like `0,5`: each number would become a class."""
    commas = [row for row, name in enumerate(names) if _point(name)]
    if commas and len(commas) >= len(names) / 2:
        raise UserError(
            f"{cells[commas[0]][0]}: label {excerpt(names[commas[0]])} is a number with a comma, "
            f"as {len(commas):,} of {len(names):,} labels are. Write decimal points, not commas; "
            "if they are names, pass --problem_type=classification, or multilabel if a comma "
            "separates labels"
        )


def _shown(value: Any) -> str:
    """A cell as a text, whatever it is; JSON's true and null are names, as it writes them."""
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _in_order(labels: Counter[str]) -> tuple[str, ...]:
    numbers = {label: parse_number(label) for label in labels}
    if all(number is not None and number.is_integer() for number in numbers.values()):
        return tuple(sorted(labels, key=lambda label: (numbers[label], label)))
    return tuple(sorted(labels))


def _require_something_to_learn(
    path: str, reader: LabelParser, counts: Counter[str], rows: int
) -> None:
    labels = reader.labels
    if reader.problem_type == MULTILABEL:
        useless = all(counts[label] == rows for label in labels)
    else:
        useless = len(labels) < 2
    if useless:
        found = f"every row has the label {_some(labels)}" if labels else "no row has a label"
        raise UserError(f"{path}: {found}, so there is nothing to learn. Is --label_column right?")
    once = sum(counts[label] == 1 for label in labels)
    many = len(labels) > min(_MANY_LABELS, max(_FEW_LABELS, rows / 2))
    if many and once > len(labels) / 2:
        _logger.warning(
            "%s: %s of %s labels occur once only. Is --label_column right, or are they numbers "
            "(--problem_type=regression)?",
            path,
            f"{once:,}",
            f"{len(labels):,}",
        )


def _some(labels: Sequence[str]) -> str:
    more = len(labels) - _SHOWN_LABELS
    return ", ".join(labels[:_SHOWN_LABELS]) + (f" and {more:,} more" if more > 0 else "")


def _on_one_line(name: str, place: str) -> str:
    # The training writes a list with a label on each line.
    if len(name.splitlines()) != 1:
        raise UserError(
            f"{place}: label {excerpt(name)} has a line end inside. Correct the line, or the "
            "quotes that begin there"
        )
    return name


def _no_number(name: str, place: str) -> str:
    return f"{place}: label {excerpt(name)} is not a number.{_point(name)} {_advice(place)}"


def _point(name: str) -> str:
    """Advice for a number with a decimal comma; empty for other texts."""
    is_comma = "," in name and parse_number(name.replace(",", ".")) is not None
    return " Write a decimal point, not a comma." if is_comma else ""


def _advice(place: str) -> str:
    if place.endswith(":1"):
        return "If line 1 has names of columns, pass --has_header=yes"
    return "Correct or remove the line"
