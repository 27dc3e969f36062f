"""Columns of a user's own table: by name or by number, and whether its first row has names."""

import difflib
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.data.cell_values import excerpt
from bert_tf.data.csv_reader import Row
from bert_tf.data.datasets import MULTILABEL
from bert_tf.data.label_inference import AUTO, is_missing_number, parse_number, split_labels
from bert_tf.data.tables import Table
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

_FLAGS = {
    "text": "--text_column",
    "text_pair": "--text_pair_column",
    "label": "--label_column",
    "id": "--id_column",
}
_SHOWN_NAMES = 20
_NAME = (
    "(text|sentence|question)(_?[12ab])?|body|category|class|comment|content|description|document|"
    "hypothesis|id|index|labels?|message|premise|review|score|sentiment|sms|target|title|tweet"
)
_USUAL_NAME = re.compile(f"({_NAME})([ _]({_NAME}))?")


@dataclass(frozen=True, kw_only=True)
class ColumnMapping:
    """Which column means what: its name, the key for JSON, or its number from 1 on.

    Attributes:
        text: the text.
        text_pair: the second text; None for single texts.
        label: the label; None where nothing is trained or evaluated.
        id: names of the texts to predict, each once, which stand beside the predictions; None for
            their numbers. Other files may lack it.
        has_header: whether the first row has names of columns, "yes", "no" or "auto". JSON has
            none.
        quoted: see `tables.read_table`.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    id: str | None = None
    has_header: str = AUTO
    quoted: str = AUTO

    def wanted(self, split: str) -> dict[str, str]:
        """What is read of a file -> the column: labels to learn from, ids of what is predicted."""
        columns = {purpose: getattr(self, purpose) for purpose in _FLAGS}
        del columns["label" if split == "predict" else "id"]
        return {purpose: column for purpose, column in columns.items() if column is not None}


@dataclass(frozen=True)
class Known:
    """What is known before a file is read, to tell names of columns from data.

    Attributes:
        problem_type: see `label_inference.PROBLEM_TYPES`.
        labels: those that there may be; none if that is not known.
        separator: between labels of a cell.
        training: the layout of the training file, once that is read.
    """

    problem_type: str = AUTO
    labels: Sequence[str] = ()
    separator: str = ","
    training: "Layout | None" = None


@dataclass(frozen=True)
class Layout:
    """A table whose columns are found.

    Attributes:
        table: the file.
        places: purpose -> number of the cell from 0 on, or the key.
        header: names of the columns; None where the first row is data.
        rows: those with data, at least one.
    """

    table: Table
    places: dict[str, Any]
    header: list[str] | None
    rows: Sequence[Row]

    def value(self, row: Row, purpose: str) -> Any:
        """What stands in a row.

        Raises:
            UserError: an object has no such key.
        """
        place = self.places[purpose]
        if self.table.is_json and place not in row.cells:
            raise UserError(
                _no_such_name(self.table.place(row), purpose, place, list(row.cells), "key")
            )
        return row.cells[place]


def lay_out(table: Table, columns: ColumnMapping, split: str, known: Known) -> Layout:
    """Finds the columns of a table.

    Whether the first row has names is guessed where all columns are numbers and nobody says it,
    from its label; without labels it has names if the training file has the same. A row that is
    taken for names is logged.

    Args:
        table: the file.
        columns: what to look for.
        split: "train", "eval" or "predict".
        known: what may help.

    Raises:
        UserError: there is no row, no such column, or two purposes have the same one.
    """
    wanted = columns.wanted(split)
    if not table.rows:
        raise UserError(f"{table.path} has not one row")
    if table.is_json:
        _require_different(table.path, wanted, wanted)
        return Layout(table, wanted, None, table.rows)
    names = [(p, c) for p in _FLAGS if (c := getattr(columns, p)) and _number(c) is None]
    if names and columns.has_header == "no":
        purpose, column = names[0]
        raise UserError(
            f"{_FLAGS[purpose]}={column} is a name, but --has_header=no says that {table.path} "
            "has none. Pass the number of the column, from 1 on"
        )
    first = table.rows[0].cells
    has_header = bool(names) or columns.has_header == "yes"
    if columns.has_header == AUTO and not names:
        has_header = _is_header(table, _places(table, wanted, None), known)
        if has_header:
            _logger.info(
                "%s: the first row is taken for names of columns: %s (--has_header=no if it is "
                "data)",
                table.path,
                _shown(first),
            )
    header = [name.strip() for name in first] if has_header else None
    if header and names:
        _require_different_names(table, header)
    places = _places(table, wanted, header)
    _require_different(table.path, wanted, places)
    rows = table.rows[1:] if header else table.rows
    if not rows:
        raise UserError(f"{table.path} has not one row beside the names of columns in its first")
    if columns.quoted == AUTO:
        _warn_of_quotes(table.path, rows, places)
    return Layout(table, places, header, rows)


def _warn_of_quotes(path: str, rows: Sequence[Row], places: dict[str, int]) -> None:
    for purpose, at in places.items():
        if len(rows) > 1 and all(re.fullmatch(r'\s*".*"\s*', row.cells[at]) for row in rows):
            message = "%s: each %s stands in quotes, which stay in it. --quoted=yes takes them off"
            _logger.warning(message, path, purpose)
            return


def _number(column: str) -> int | None:
    is_number = column.isascii() and column.isdecimal() and len(column) < 10
    return int(column) if is_number else None


def _places(table: Table, wanted: dict[str, str], header: list[str] | None) -> dict[str, Any]:
    """Purpose -> number of the cell from 0 on."""
    first = table.rows[0]
    places = {}
    for purpose, column in wanted.items():
        number = _number(column)
        if header and column.strip() in header:
            places[purpose] = header.index(column.strip())
        elif number is None:
            raise UserError(
                _no_such_name(table.place(first), purpose, column, header or [], "column")
            )
        elif not 1 <= number <= len(first.cells):
            width = len(first.cells)
            there = "column 1 only" if width == 1 else f"columns 1 to {width}"
            raise UserError(
                f"{table.place(first)}: {_FLAGS[purpose]}={column}, but the row has {there}: "
                f"{excerpt(', '.join(first.cells))}.{_of_csv(first.cells)}"
            )
        else:
            places[purpose] = number - 1
    return places


def _no_such_name(place: str, purpose: str, column: str, names: list[str], kind: str) -> str:
    shown = ", ".join(excerpt(name) for name in names[:_SHOWN_NAMES]) or "nothing"
    more = len(names) - _SHOWN_NAMES
    shown += f" and {more} more" if more > 0 else ""
    folded = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(column.casefold(), folded, n=1)
    if kind == "column" and any(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        advice = " Names stand in quotes: pass --quoted=yes"
    elif close:
        advice = f" Did you mean {_FLAGS[purpose]}={folded[close[0]]}?"
    elif kind == "key" and _number(column) is not None:
        advice = " Keys of JSON have no numbers: pass one of them"
    elif kind == "key":
        advice = f" Correct {_FLAGS[purpose]}, or the line"
    else:
        advice = _of_csv(names) or " If this row is data, pass numbers of columns, from 1 on"
    return f"{place}: there is no {kind} {column!r} ({_FLAGS[purpose]}), only {shown}.{advice}"


def _of_csv(cells: Sequence[str]) -> str:
    looks_like_one = len(cells) == 1 and ("," in cells[0] or ";" in cells[0])
    return " Is this a CSV? Then call it .csv" if looks_like_one else ""


def _require_different_names(table: Table, header: list[str]) -> None:
    for number, name in enumerate(header):
        if name and name in header[:number]:
            raise UserError(
                f"{table.place(table.rows[0])}: columns {header.index(name) + 1} and {number + 1} "
                f"are both called {excerpt(name)}. Rename one, or pass all columns by number"
            )


def _require_different(path: str, wanted: dict[str, str], places: dict[str, Any]) -> None:
    taken: dict[Any, str] = {}
    for purpose, place in places.items():
        other = taken.setdefault(place, purpose)
        if other != purpose:
            raise UserError(
                f"{path}: {_FLAGS[other]}={wanted[other]} and {_FLAGS[purpose]}={wanted[purpose]} "
                "are the same column. Pass two different ones"
            )


def _is_header(table: Table, places: dict[str, int], known: Known) -> bool:
    """Whether the first row seems to have names of columns. All columns are numbers.

    Without labels only the names of the training file count: a text that is taken for a name would
    be missing from the predictions. What looks like a header for another reason is pointed out.
    """
    at = places.get("label", places["text"])
    first, *others = (row.cells[at] for row in table.rows)
    if "label" in places and _is_no_label(first, others, known):
        return True
    cells, names = table.rows[0].cells, known.training.header if known.training else None
    texts = [at for purpose, at in places.items() if purpose != "id" and at < len(names or ())]
    if names and texts and all(cells[at].strip() == names[at] for at in texts):
        return True
    looks_like_one = bool(_USUAL_NAME.fullmatch(first.strip().lower())) and first not in others
    if "label" not in places and (names or not known.training):
        longer = sum(len(other.split()) > 1 or len(other) > 4 * len(first) for other in others)
        looks_like_one |= len(first.split()) == 1 and longer > len(others) / 2
    if looks_like_one:
        message = "%s looks like a header, but is read as data: %s (--has_header=yes leaves it out)"
        _logger.warning(message, table.place(table.rows[0]), _shown(cells))
    return False


def _shown(names: Sequence[str]) -> str:
    return ", ".join(" ".join(name.split())[:30] for name in names[:_SHOWN_NAMES])


def _is_no_label(cell: str, others: list[str], known: Known) -> bool:
    """Whether the first cell of a column of labels is its name.

    Args:
        cell: the first one.
        others: those below.
        known: what else is known about labels.
    """

    def names(text: str) -> list[str]:
        several = known.problem_type == MULTILABEL
        return split_labels(text, known.separator) if several else [text.strip()]

    found = names(cell)
    counts = Counter(name for other in others for name in names(other) if name)
    if not any(found) or any(name in counts for name in found):
        return False
    if known.labels:
        return not any(name in known.labels for name in found)
    numbers = sum(count for name, count in counts.items() if parse_number(name) is not None)
    if numbers > counts.total() / 2 and all(map(_may_be_number, counts)):
        # One number more, that occurs once, is no name.
        return not all(map(_may_be_number, found))
    return max(counts.values(), default=0) > 1


def _may_be_number(label: str) -> bool:
    # A mark of a missing number is an error that `label_inference` reports, and no column name.
    return parse_number(label) is not None or is_missing_number(label)
