"""Parses labels of user tables; infers the label set and problem type of a training file."""

import ast
import contextlib
import dataclasses
import difflib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bert_tf import lint
from bert_tf.base.errors import UserError, Where, brief, counted, excerpt, note, shortened, warn
from bert_tf.tables.columns import parse_number, to_text
from bert_tf.tasks.classification.datasets import require_valid_labels
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, MULTILABEL, REGRESSION

# Labels that mostly occur once are probably not classes if there are more than half as many labels
# as rows. This limit is at least `_FEW_LABELS` and at most `_MANY_LABELS`.
_FEW_LABELS, _MANY_LABELS = 8, 50
# As pandas writes 0/1 columns.
_BOOLEANS = {"true": "1", "false": "0"}
_LIST = re.compile(r"\s*\[.*\]\s*", re.DOTALL)
# What stands for a missing number.
_NO_NUMBER = re.compile("(-?inf|infinity|nan|n/?a|null|none|[?-])?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class LabelParser:
    """Parses cells with labels.

    `problem_type` is "auto" and `labels` is empty until they are inferred; for regression, it names
    the numbers of a label if there are several. `separator` splits a multi-label cell; "": white
    space. Rows with a label in `skipped` are left out; None if no option does so. `is_inferred`:
    the labels are those of a training file. In all methods, `place` is a cell's file and line.
    """

    problem_type: str
    labels: tuple[str, ...] = ()
    separator: str = ","
    skipped: tuple[str, ...] | None = None
    is_inferred: bool = False

    @property
    def placeholder(self) -> Any:
        """A label for examples whose label is not used."""
        if self.problem_type == REGRESSION:
            return ("0",) * len(self.labels) or "0"
        return () if self.problem_type == MULTILABEL else next(iter(self.labels), "0")

    def parse(self, value: Any, place: Where) -> Any:
        """Converts a cell to a label: a tuple if there are several labels or numbers, in order."""
        names = self.names(value, place)
        if self.problem_type == MULTILABEL:
            return tuple(label for label in self.labels if label in names)
        return tuple(names) if self.problem_type == REGRESSION and self.labels else names[0]

    def names(self, value: Any, place: Where) -> list[str]:
        """Lists the labels in a cell, exactly one unless multilabel, or the numbers, as text."""
        is_multilabel = self.problem_type == MULTILABEL
        if self.problem_type == REGRESSION or (isinstance(value, dict) and is_multilabel):
            return self._named_values(value, place)
        if not isinstance(value, list | dict):
            names = self.split(to_text(value, "label", place))
        elif is_multilabel:
            names = [self._strip(to_text(part, "label", place)) for part in value]
        else:
            raise UserError("a list of labels needs problem_type=multilabel", at=place)
        if "" in names or not (names or is_multilabel):
            raise UserError("the label is empty", at=place, fix=self.skip_advice(""))
        for name in names:
            if self.labels and name not in self.labels:
                close = difflib.get_close_matches(name, self.labels, n=1)
                advice = f"Did you mean {brief(close)[0]}?" if close else None
                if self.is_inferred and not close:
                    advice = "If the label is new, pass all labels as --labels"
                advice = self.skip_advice(name) or advice
                problem = f"label {excerpt(name)} is not one of {shortened(brief(self.labels))}"
                raise UserError(problem, at=place, fix=advice)
        return list(dict.fromkeys(names))

    def _named_values(self, value: Any, place: Where) -> list[str]:
        """Lists the numbers in a cell, as text, or the names of those that are 1."""
        texts = [to_text(part, "label", place).strip() for part in _parts(value) or [""]]
        names = target_names(value, self.problem_type)
        for text in texts:
            if parse_number(text) is None:
                raise not_a_number(text, place, self.skip_advice(text))
        if sorted(names) != sorted(self.labels):
            found, expected = (shortened(brief(x)) or "one number" for x in (names, self.labels))
            raise UserError(f"the label has {found}, but others have {expected}", at=place)
        by_name = dict(zip(names, texts, strict=False))
        if self.problem_type == REGRESSION:
            return [by_name[name] for name in self.labels] or texts
        for name, text in by_name.items():
            if text not in ("0", "1"):
                problem = f"label {name} must be 0 or 1. Received: {text}"
                raise UserError(problem, at=place, fix=self.skip_advice(text))
        return [name for name in names if by_name[name] == "1"]

    def split(self, text: str) -> list[str]:
        """Splits the text of a cell into labels; returns [] if it is blank."""
        is_list = self.problem_type == MULTILABEL and text not in self.labels
        parts = text.split(self.separator or None) if is_list else [text]
        return [self._strip(part) for part in parts if part.strip()]

    def is_skipped(self, value: Any, place: Where) -> bool:
        """Returns whether the row of a cell is left out."""
        names = ["" if part is None else str(part).strip() for part in _parts(value)]
        if not isinstance(value, list | dict | None):
            names = self.split(to_text(value, "label", place)) or [""]
        return not {*(self.skipped or ())}.isdisjoint(names)

    def skip_advice(self, name: str) -> str | None:
        """Returns how to leave out rows with a label that probably stands for a missing one."""
        if self.skipped is None or not re.search(lint.NO_LABEL, name):
            return None
        skipped = ",".join((*self.skipped, name)) or ","
        return f"To leave out such rows, pass --skip_labels={skipped}"

    def _strip(self, text: str) -> str:
        # A task module may have labels with spaces around them.
        return text if text in self.labels else text.strip()


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else [value]


def target_names(value: Any, problem_type: str = REGRESSION) -> tuple[str, ...]:
    """Returns the names of the numbers in a label: keys or indexes; () for a single number.

    If `problem_type` is multilabel, the numbers are 0 or 1, and only an object has names.
    """
    if isinstance(value, list) and problem_type == REGRESSION:
        value = dict(enumerate(value))
    is_named = isinstance(value, dict) and (len(value) > 1 or problem_type == MULTILABEL)
    return tuple(map(str, value)) if is_named else ()


def unpack(cell: Any) -> Any:
    """Converts a cell such as `[1.5, 3]` or, as pandas writes it, `['a', 'b']` to a list.

    Given several columns, name -> cell, converts their numbers, and `True` and `False` to 1 and 0.
    """
    if isinstance(cell, dict):
        texts = {name: str(value).strip().lower() for name, value in cell.items()}
        numbers = {name: parse_number(_BOOLEANS.get(text, text)) for name, text in texts.items()}
        return {name: cell[name] if number is None else number for name, number in numbers.items()}
    # Not NumPy's ['a' 'b'], which Python would read as "ab".
    if isinstance(cell, str) and _LIST.fullmatch(cell) and not re.search(r"['\"]\s+['\"]", cell):
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(cell.strip())
    return cell


def infer_labels(
    path: str, places: Sequence[Where], values: Sequence[Any], given: LabelParser
) -> LabelParser:
    """Infers what `given` leaves open, problem type and labels, from a training file; logs both.

    `values` are the labels of the rows at `places`. Inferred labels are in numerical order if all
    are whole numbers, otherwise in alphabetical order.
    """
    problem_type = given.problem_type
    if any(isinstance(value, list | dict) for value in values):
        problem_type = _infer_type_of_lists(path, values, given)
    elif problem_type == AUTO:
        problem_type = _infer_problem_type(places, values, given)
    known = target_names(values[0], problem_type)
    require_valid_labels(known, path)
    parser = dataclasses.replace(given, problem_type=problem_type, labels=given.labels or known)
    names = list(map(parser.names, values, places))
    counts = Counter(itertools.chain.from_iterable(names))
    if problem_type == MULTILABEL and max(map(len, names)) < 2:
        problem = f"no row has two labels, separated by {given.separator!r}"
        warn(f"{problem}: is --problem_type=multilabel right?", at=path)
    if problem_type == REGRESSION:
        numbers = [float(name) for name in counts]
        count = f"{len(parser.labels)} " if parser.labels else ""
        summary = f"{count}numbers from {min(numbers):g} to {max(numbers):g}"
        is_class = {0.0, 1.0}.__contains__ if known else float.is_integer
        decisive = [not all(is_class(float(name)) for name in row) for row in names]
        if given.problem_type == AUTO and 0 < 2 * sum(decisive) < len(names):
            summary += f", because of {places[decisive.index(True)]}"
    else:
        labels = parser.labels or _sort_labels(counts)
        parser = dataclasses.replace(parser, labels=labels, is_inferred=not given.labels)
        require_valid_labels(parser.labels, path)
        _check_counts(path, parser, counts, len(values))
        labels = zip(brief(parser.labels), parser.labels, strict=True)
        label_counts = [f"{name} ({counts[label]:,})" for name, label in labels]
        summary = f"{counted(len(label_counts), 'label')}: {shortened(label_counts)}"
    note(f"{counted(len(values), 'row')}; {problem_type} with {summary}", at=path)
    return parser


def _infer_type_of_lists(path: str, values: Sequence[Any], given: LabelParser) -> str:
    """Infers the problem type of lists and objects: numbers to predict, or names of labels.

    Objects of 0 and 1 are labels by name. Raises a UserError for lists of equal length that may be
    either.
    """
    lists = [value for value in values if isinstance(value, list | dict)]
    rows = list(map(_parts, lists))
    numbers = list(itertools.chain.from_iterable(rows))
    is_auto = given.problem_type == AUTO and not given.labels
    problem_type = MULTILABEL if given.problem_type == AUTO else given.problem_type
    if isinstance(lists[0], dict):
        if not is_auto or (numbers and all(x in (0, 1) for x in numbers)):
            return problem_type
        is_unclear = -1 in numbers and all(x in (-1, 0, 1) for x in numbers)
        problem_type = REGRESSION
    elif problem_type == REGRESSION or not all(isinstance(x, int | float) for x in numbers):
        return problem_type
    else:
        are_scores = not all(float(x).is_integer() for x in numbers)
        is_unclear = {*numbers} <= {0, 1} or is_auto != are_scores
        is_unclear &= len({*map(len, rows)}) == 1 and len(rows[0]) > 1
        problem_type = REGRESSION if is_auto and are_scores else problem_type
    if is_unclear:
        examples = shortened(sorted({f"{x:g}" for x in numbers}), 5)
        advice = "To predict them, pass --problem_type=regression; otherwise, list names of labels"
        if isinstance(lists[0], dict):
            advice = "If -1 means no label, pass --skip_labels=-1; else --problem_type=regression"
        raise UserError(f"the numbers {examples} may be labels or targets", at=path, fix=advice)
    return problem_type


def _infer_problem_type(places: Sequence[Where], values: Sequence[Any], given: LabelParser) -> str:
    """Infers the problem type; raises a UserError for a label that must be a mistake.

    If most labels are numbers, not all of them whole, any other label is a mistake. If the numbers
    are whole, they are classes, and so are other labels, except for placeholders for missing
    numbers and numbers with a decimal comma, which are mistakes.
    """
    if given.labels:
        return CLASSIFICATION
    cells = zip(values, places, strict=True)
    texts = [to_text(value, "label", place).strip() for value, place in cells]
    # Decimal commas count as numbers here.
    parsed = [parse_number(text.replace(",", ".")) for text in texts]
    numbers = [number for number in parsed if number is not None]
    if len(numbers) <= len(texts) / 2:
        return CLASSIFICATION
    all_integers = all(map(float.is_integer, numbers))
    for place, text, number in zip(places, texts, parsed, strict=True):
        must_be_number = not all_integers or number is not None or _NO_NUMBER.fullmatch(text)
        if must_be_number and parse_number(text) is None:
            advice = "If labels are classes, pass --problem_type=classification"
            raise not_a_number(text, place, advice if text else given.skip_advice(text))
    return CLASSIFICATION if all_integers else REGRESSION


def not_a_number(text: str, place: Where, fix: str | None) -> UserError:
    """Returns the error for a label that should be a number."""
    return UserError(f"label {excerpt(text)} is not a number, such as 1500.5", at=place, fix=fix)


def _sort_labels(labels: Counter[str]) -> tuple[str, ...]:
    numbers = {label: parse_number(label) for label in labels}
    if all(number is not None and number.is_integer() for number in numbers.values()):
        return tuple(sorted(labels, key=lambda label: (numbers[label], label)))
    return tuple(sorted(labels))


def _check_counts(path: str, parser: LabelParser, counts: Counter[str], num_rows: int) -> None:
    labels = parser.labels
    # Only multi-label data can be learned with a single label, since rows may lack it.
    if all(counts[label] == num_rows for label in labels) or (
        len(labels) < 2 and parser.problem_type != MULTILABEL
    ):
        names = shortened(brief(labels))
        reason = f"every row has the label {names}" if labels else "no row has a label"
        raise UserError(reason, at=path)
    num_single = sum(counts[label] == 1 for label in labels)
    has_many = len(labels) > min(_MANY_LABELS, max(_FEW_LABELS, num_rows / 2))
    if has_many and num_single > len(labels) / 2:
        warn(f"{num_single} of {len(labels)} labels occur only once", at=path)
