"""Finds the columns of a user's table by name or number, and detects a header row."""

import difflib
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.data.cell_values import COLUMN_NAME, counted, excerpt, parse_number
from bert_tf.data.tables import Row
from bert_tf.errors import UserError, shortened
from bert_tf.tasks.classification.label_inference import MISSING_NUMBER, LabelParser
from bert_tf.tasks.classification.options import ClassifierOptions

_logger = logging.getLogger(__name__)

_PURPOSES = ("text", "text_pair", "label", "id")
_SHOWN_NAMES = 20


def columns_of_split(options: ClassifierOptions, split: str) -> dict[str, str]:
    """Returns purpose -> column, with "id" for prediction and "label" for other splits."""
    unused = "label" if split == "predict" else "id"
    return {purpose: name for purpose, name in _get_columns(options).items() if purpose != unused}


def _get_columns(options: ClassifierOptions) -> dict[str, str]:
    columns = {purpose: getattr(options, f"{purpose}_column") for purpose in _PURPOSES}
    return {purpose: column for purpose, column in columns.items() if column is not None}


def find_header(
    path: str,
    rows: Sequence[Row],
    options: ClassifierOptions,
    split: str,
    labels: LabelParser,
    training_header: Sequence[str] | None,
) -> list[str]:
    """Returns the column names in the first row of a table, or [] if that row is data.

    If all columns are given by number and `has_header` is "auto", this is a guess, which is logged:
    the first row is a header if its label does not look like the others. Without labels, it is
    a header if it equals that of the training file (None if that file has not been read).
    """
    if isinstance(rows[0].cells, dict):
        return []
    header = [name.strip() for name in rows[0].cells]
    columns = _get_columns(options).items()
    named = [f"--{purpose}_column={name}" for purpose, name in columns if _is_name(name)]
    if options.has_header == "no":
        for name in named:
            raise UserError(f"{name} is a name, but --has_header=no: pass a 1-based number")
        return []
    if named or options.has_header == "yes":
        return header
    positions = find_positions(path, rows[0], columns_of_split(options, split), [])
    if not _is_header(rows, positions, labels, training_header):
        return []
    message = "%s: the first row is used as column names: %s (--has_header=no if it is data)"
    _logger.info(message, path, _join_names(header))
    return header


def find_positions(
    path: str, first: Row, columns: Mapping[str, str], header: Sequence[str]
) -> dict[str, Any]:
    """Maps each purpose to a column index or JSON key, using the first row of a table."""
    purposes: dict[Any, str] = {}
    for purpose, column in columns.items():
        is_json = isinstance(first.cells, dict)
        position = column if is_json else _find_position(first, purpose, column, header)
        other = purposes.setdefault(position, purpose)
        if other != purpose:
            raise UserError(
                f"{path}: --{other}_column and --{purpose}_column={column} are the same column"
            )
    return {purpose: position for position, purpose in purposes.items()}


def warn_about_headers(
    rows: Sequence[Row], columns: Mapping[str, str], header: Sequence[str], known: Sequence[str]
) -> None:
    """Warns about repeated headers, and names that differ from `known`, the training file's."""
    repeated = [r.place for r in rows[1:] if header and [c.strip() for c in r.cells] == header]
    if repeated:
        message = "%s equals the header (%s in all). Check whether files were joined"
        _logger.warning(message, repeated[0], counted(len(repeated), "such row"))
    # A header that was mistaken for data shares names with the training file.
    names = header or [name.strip() for name in rows[0].cells]
    pairs = list(zip(names, known, strict=False)) if header or {*names} & {*known} else []
    for purpose, column in columns.items():
        # Ids are only read for prediction.
        is_number = purpose != "id" and not _is_name(column) and column not in header
        for here, there in pairs[int(column) - 1 : int(column)] if is_number else ():
            if here.casefold() != there.casefold():
                message = "%s: column %s is %r, but %r in the training file. Check --%s_column"
                _logger.warning(message, rows[0].place, column, here, there, purpose)


def cell(row: Row, purpose: str, position: Any) -> Any:
    """Returns the value of a cell; raises UserError if a JSON object lacks the key."""
    if isinstance(row.cells, dict) and position not in row.cells:
        raise _no_such_column(row.place, purpose, position, list(row.cells), "key")
    return row.cells[position]


def _is_name(column: str) -> bool:
    return not re.fullmatch("[0-9]{1,9}", column)


def _find_position(first: Row, purpose: str, column: str, header: Sequence[str]) -> int:
    matches = [position for position, name in enumerate(header) if name == column.strip()]
    if len(matches) > 1:
        columns = f"columns {matches[0] + 1} and {matches[1] + 1}"
        raise UserError(f"{first.place}: {columns} are both called {excerpt(column)}. Rename one")
    if matches:
        return matches[0]
    if _is_name(column):
        raise _no_such_column(first.place, purpose, column, header, "column")
    if not 1 <= int(column) <= len(first.cells):
        raise UserError(
            f"{first.place}: --{purpose}_column={column}, but the row has "
            f"{counted(len(first.cells), 'column')}.{_csv_hint(first.cells)}"
        )
    return int(column) - 1


def _no_such_column(
    place: str, purpose: str, column: str, names: Sequence[str], kind: str
) -> UserError:
    available = shortened(list(map(excerpt, names)), _SHOWN_NAMES) or "nothing"
    folded = {name.casefold(): name for name in reversed(names)}
    close = difflib.get_close_matches(column.casefold(), folded, n=1)
    if kind == "column" and any(re.fullmatch('".+"', name) for name in names):
        advice = " Names are in quotes: pass --quoted=yes"
    elif close:
        advice = f" Did you mean --{purpose}_column={folded[close[0]]}?"
    elif kind == "key":
        advice = " Pass one of these, or correct the line"
    else:
        advice = _csv_hint(names) or " If this row is data, pass 1-based column numbers"
    return UserError(
        f"{place}: there is no {kind} {column!r} (--{purpose}_column), only {available}.{advice}"
    )


def _csv_hint(cells: Sequence[str]) -> str:
    looks_like_csv = len(cells) == 1 and ("," in cells[0] or ";" in cells[0])
    return " Is this a CSV? Then call it .csv" if looks_like_csv else ""


def _is_header(
    rows: Sequence[Row],
    positions: Mapping[str, int],
    labels: LabelParser,
    training_header: Sequence[str] | None,
) -> bool:
    """Guesses whether the first row holds column names; warns if it is data that looks like names.

    Without labels, it is a header only if it equals that of the training file: a text mistaken
    for a name would be missing from the predictions.
    """
    position = positions.get("label", positions["text"])
    first, *others = (row.cells[position] for row in rows)
    if "label" in positions and _is_label_name(first, others, labels):
        return True
    cells, names = rows[0].cells, training_header or []
    indices = [index for purpose, index in positions.items() if purpose != "id"]
    if [cells[i].strip() for i in indices] == [names[i] for i in indices if i < len(names)]:
        return True
    looks_like_name = bool(COLUMN_NAME.fullmatch(first)) and first not in others
    if "label" not in positions and training_header != []:
        longer = sum(len(other.split()) > 1 or len(other) > 4 * len(first) for other in others)
        looks_like_name |= len(first.split()) == 1 and longer > len(others) / 2
    if looks_like_name:
        message = "%s looks like a header, but is read as data: %s (--has_header=yes leaves it out)"
        _logger.warning(message, rows[0].place, _join_names(cells))
    return False


def _is_label_name(first: str, others: Sequence[str], labels: LabelParser) -> bool:
    """Guesses whether the first cell of the label column is its name, from the cells below."""
    names = labels.split(first)
    counts = Counter(name for other in others for name in labels.split(other))
    if not names or any(name in counts for name in names):
        return False
    if labels.labels:
        return not any(name in labels.labels for name in names)
    numbers = sum(count for name, count in counts.items() if parse_number(name) is not None)
    if numbers > counts.total() / 2 and all(map(_is_number_like, counts)):
        # A number is not a name, even if it occurs only once.
        return not all(map(_is_number_like, names))
    return max(counts.values(), default=0) > 1


def _is_number_like(label: str) -> bool:
    # `label_inference` reports missing numbers.
    return parse_number(label) is not None or bool(MISSING_NUMBER.fullmatch(label))


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(" ".join(name.split())[:30] for name in names[:_SHOWN_NAMES])
