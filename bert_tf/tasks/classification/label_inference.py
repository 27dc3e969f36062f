"""Parses labels of user tables; infers the label set and problem type of a training file."""

import dataclasses
import difflib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bert_tf.data.cell_values import counted, excerpt, parse_number, to_text
from bert_tf.errors import UserError, shortened
from bert_tf.tasks.classification.datasets import CLASSIFICATION, MULTILABEL, REGRESSION

_logger = logging.getLogger(__name__)

AUTO = "auto"

# More labels than this (or half the rows, in small files) that mostly occur once are not classes.
_MANY_LABELS, _FEW_LABELS = 50, 8
# Common spellings of a missing number.
MISSING_NUMBER = re.compile(r"(-?inf|infinity|nan|n/?a|null|none|[?-])?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class LabelParser:
    """Parses cells with labels.

    `problem_type` is "auto" and `labels` is empty until they are inferred. `separator` splits a
    multi-label cell. `place` is a cell's file and line, for messages.
    """

    problem_type: str
    labels: tuple[str, ...] = ()
    separator: str = ","

    @property
    def placeholder(self) -> Any:
        """A label for examples whose label is not used."""
        return () if self.problem_type == MULTILABEL else next(iter(self.labels), "0")

    def parse(self, value: Any, place: str) -> Any:
        """Converts a cell to a label, or, for multi-label data, to a tuple ordered by label id."""
        names = self.label_names(value, place)
        if self.problem_type == MULTILABEL:
            return tuple(label for label in self.labels if label in names)
        return names[0]

    def label_names(self, value: Any, place: str) -> list[str]:
        """Lists the labels in a cell: exactly one unless this is multi-label classification."""
        if not isinstance(value, list):
            names = self.split(to_text(value, "label", place))
        elif self.problem_type == MULTILABEL:
            names = [to_text(part, "label", place).strip() for part in value]
        else:
            raise UserError(f"{place}: a list of labels needs --problem_type=multilabel")
        if "" in names or not (names or self.problem_type == MULTILABEL):
            raise UserError(f"{place}: the label is empty. Correct or remove the line")
        for name in names:
            self._check(name, place)
        return list(dict.fromkeys(names))

    def split(self, text: str) -> list[str]:
        """Splits the text of a cell into labels; none if it is blank."""
        parts = text.split(self.separator) if self.problem_type == MULTILABEL else [text]
        return [part.strip() for part in parts if part.strip()]

    def _check(self, name: str, place: str) -> None:
        if self.problem_type == REGRESSION and parse_number(name) is None:
            raise _not_a_number(name, place)
        # labels.txt has one label per line.
        if len(name.splitlines()) != 1:
            raise UserError(f"{place}: label {excerpt(name)} contains a line break. Fix the line")
        if self.labels and name not in self.labels:
            close = difflib.get_close_matches(name, self.labels, n=1)
            advice = f"Did you mean {close[0]}?" if close else _advice(place)
            subject = f"{place}: label {excerpt(name)}"
            raise UserError(f"{subject} is not one of {shortened(self.labels)}. {advice}")


def infer_labels(
    path: str, places: Sequence[str], values: Sequence[Any], known: LabelParser
) -> LabelParser:
    """Infers the problem type and labels, if unknown, from a training file, and logs them.

    `values` are the labels of the rows at `places`. Inferred labels are in numerical order if all
    are whole numbers, otherwise in alphabetical order.
    """
    problem_type = known.problem_type
    if problem_type == AUTO:
        problem_type = _infer_problem_type(places, values, known)
    parser = dataclasses.replace(known, problem_type=problem_type)
    _warn_about_kinds(path, values)
    names = list(map(parser.label_names, values, places))
    counts = Counter(itertools.chain.from_iterable(names))
    if problem_type == MULTILABEL and max(map(len, names)) < 2:
        message = "%s: multilabel, but no row has two labels. Is --label_separator=%s correct?"
        _logger.warning(message, path, known.separator)
    if problem_type == REGRESSION:
        numbers = [float(name) for name in counts]
        summary = f"numbers from {min(numbers):g} to {max(numbers):g}"
    else:
        parser = dataclasses.replace(parser, labels=parser.labels or _sort_labels(counts))
        _check_labels(path, parser, counts, len(values))
        kinds = [f"{label} ({counts[label]:,})" for label in parser.labels]
        summary = f"{counted(len(kinds), 'label')}: {shortened(kinds)}"
    _logger.info("%s: %s; %s with %s", path, counted(len(values), "row"), problem_type, summary)
    return parser


def _infer_problem_type(places: Sequence[str], values: Sequence[Any], known: LabelParser) -> str:
    """Infers the problem type.

    If most labels are whole numbers, the others may still be classes, except for placeholders for
    missing numbers and numbers with decimal commas: these are errors, not additional classes.
    """
    if any(isinstance(value, list) for value in values):
        return MULTILABEL
    if known.labels:
        return CLASSIFICATION
    texts = [to_text(*cell).strip() for cell in zip(values, itertools.repeat("label"), places)]
    numbers = [parse_number(text.replace(",", ".")) for text in texts]
    valid = [number for number in numbers if number is not None]
    if len(valid) <= len(texts) / 2:
        return CLASSIFICATION
    all_integers = all(number.is_integer() for number in valid)
    for place, text, number in zip(places, texts, numbers, strict=True):
        # A number that only parses with its comma replaced has a decimal comma.
        is_invalid = number is not None or MISSING_NUMBER.fullmatch(text) or not all_integers
        if is_invalid and parse_number(text) is None:
            raise _not_a_number(text, place, ", but most labels are")
    return CLASSIFICATION if all_integers else REGRESSION


def _not_a_number(text: str, place: str, context: str = "") -> UserError:
    point = " Write a decimal point, not a comma." if "," in text else ""
    choice = "; if it is a label, pass --problem_type=classification" if context and text else ""
    return UserError(
        f"{place}: label {excerpt(text)} is not a number{context}.{point} {_advice(place)}{choice}"
    )


def _sort_labels(labels: Counter[str]) -> tuple[str, ...]:
    numbers = {label: parse_number(label) for label in labels}
    if all(number is not None and number.is_integer() for number in numbers.values()):
        return tuple(sorted(labels, key=lambda label: (numbers[label], label)))
    return tuple(sorted(labels))


def _warn_about_kinds(path: str, values: Sequence[Any]) -> None:
    cells = [part for value in values for part in (value if isinstance(value, list) else [value])]
    # "1" is the same label as 1. Cells of other formats than JSON are all strings.
    kinds = {type(x) if parse_number(str(x)) is None else "number": x for x in cells}
    if len(kinds) > 1 and not all(isinstance(cell, str) for cell in cells):
        examples = " and ".join(json.dumps(value) for value in kinds.values())
        _logger.warning("%s: labels of different kinds, such as %s. Check them", path, examples)


def _check_labels(path: str, parser: LabelParser, counts: Counter[str], rows: int) -> None:
    labels = parser.labels
    # Only multi-label data can be learned with a single label, since rows may lack it.
    if all(counts[label] == rows for label in labels) or (
        len(labels) < 2 and parser.problem_type != MULTILABEL
    ):
        reason = f"every row has the label {shortened(labels)}" if labels else "no row has a label"
        raise UserError(f"{path}: {reason}; nothing to learn. Check --label_column")
    once = sum(counts[label] == 1 for label in labels)
    many = len(labels) > min(_MANY_LABELS, max(_FEW_LABELS, rows / 2))
    if many and once > len(labels) / 2:
        message = "%s: %d of %d labels occur only once. Check --label_column; are these numbers?"
        _logger.warning(message, path, once, len(labels))


def _advice(place: str) -> str:
    header_advice = "If line 1 is a header, pass --has_header=yes"
    return header_advice if place.endswith(":1") else "Correct or remove the line"
