"""Selects the columns of a split of a user's table, and detects a header row."""

import types
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bert_tf.base.errors import UserError, brief, counted, note, shortened, warn
from bert_tf.options.declare import value_for
from bert_tf.tables.columns import (
    COLUMN_NAME,
    find_positions,
    is_name,
    parse_number,
    positions_in,
)
from bert_tf.tables.read import Row
from bert_tf.tasks.classification.label_inference import LabelParser, is_number_like
from bert_tf.tasks.classification.options import ClassifierOptions


class TrainingTable(NamedTuple):
    """The columns of training files, with which other files are compared.

    Attributes:
        header: column names. None: not read. []: no header.
        num_columns: number of columns; 0 if unknown, or if a file without labels would have its
            text, given by number, in the same column.
        text_columns: folder of a model whose texts should be the same -> its text column and text
            pair column, "" if it has none.
    """

    header: Sequence[str] | None = None
    num_columns: int = 0
    text_columns: Mapping[str, Sequence[str]] = types.MappingProxyType({})


def columns_of_split(
    options: ClassifierOptions, split: str, without: Collection[str] = ()
) -> dict[str, str]:
    """Returns purpose -> column in the file of a split, `without` some purposes."""
    purposes = ("text", "text_pair", "label", "id")
    columns = {name: getattr(options, f"{name}_column") or "" for name in purposes}
    found = {name: value_for(column, split) for name, column in columns.items()}
    return {name: column for name, column in found.items() if column and name not in without}


def find_header(
    path: str,
    rows: Sequence[Row],
    options: ClassifierOptions,
    split: str,
    columns: Mapping[str, str],
    labels: LabelParser,
    training_header: Sequence[str] | None,
) -> list[str]:
    """Returns the column names in the first row of a table, or [] if that row is data.

    `columns` are those that are read. If `has_header` is "auto" and all columns are given by
    number, guesses: the first row is a header if its label does not look like the labels below, or
    if it equals `training_header` (None: not read; []: no header).
    """
    if isinstance(rows[0].cells, dict):
        return []
    header = [name.strip() for name in rows[0].cells]
    has_header = value_for(options.has_header, split)
    # If a split has values of its own, only the columns that are read there need names.
    is_special = has_header != options.has_header or columns["text"] != options.text_column
    flags = columns if is_special else columns_of_split(options, split)
    by_name = [f"--{purpose}_column={name}" for purpose, name in flags.items() if is_name(name)]
    if has_header == "no":
        if by_name:
            flag = f"--has_header={options.has_header}"
            raise UserError(f"{by_name[0]} is a name, but {flag}: pass a 1-based number")
        return []
    if by_name or has_header == "yes":
        return header
    positions = find_positions(path, rows[0], columns, [])
    if not _is_header(rows, positions, labels, training_header):
        return []
    note(
        f"the first row is used as column names: {shortened(brief(header), 20)} "
        "(--has_header=no reads it as data)",
        at=path,
    )
    return header


def warn_about_columns(
    rows: Sequence[Row],
    options: ClassifierOptions,
    split: str,
    columns: Mapping[str, str],
    header: Sequence[str],
    training: TrainingTable,
) -> None:
    """Warns about rows that repeat the header, and columns that differ from the training file's.

    The latter only for columns that are not given for this split. Also warns if texts have other
    columns than those of the model or teacher, but the file has columns with those names, too.
    """
    repeated = [
        r.place
        for r in rows[1:]
        if header and [c.strip().lstrip("\ufeff") for c in r.cells] == header
    ]
    if repeated:
        warn(
            f"{repeated[0]} equals the header ({counted(len(repeated), 'such row')} in all)",
            fix="Check whether files were concatenated",
        )
    cells, training_header = rows[0].cells, training.header or []
    # Columns given by name were found in the header; ids are only read for prediction.
    numbers = {
        purpose: int(column)
        for purpose, column in columns.items()
        if purpose != "id" and not is_name(column) and "," not in column and column not in header
        if column == getattr(options, f"{purpose}_column")
    }
    if "text" in numbers and len(cells) < training.num_columns:
        warn(
            f"{rows[0].place} has {counted(len(cells), 'column')}, but the training "
            f"file has {training.num_columns}",
            fix=f"Check --text_column, or add ,{split}:NUMBER to it",
        )
    # Without a header, compare the first row if it shares a name with the training file's header:
    # then it is probably a header that was mistaken for data.
    names = header or [name.strip() for name in cells]
    if header or {*names} & {*training_header}:
        pairs = dict(enumerate(zip(names, training_header, strict=False), start=1))
        for purpose, number in numbers.items():
            name, trained = pairs.get(number, ("", ""))
            if name.casefold() != trained.casefold():
                warn(
                    f"column {number} is {name!r}, but {trained!r} in the training file",
                    at=rows[0].place,
                    fix=f"Check --{purpose}_column",
                )
    used = list(columns_of_split(options, "train", without=("label", "id")).values())
    for folder, text_columns in training.text_columns.items():
        others = list(filter(None, (value_for(column, "train") for column in text_columns)))
        is_other = is_name(used[0]) and others != used and {*others} <= {*names}
        if others and (is_other or len(others) != len(used)):
            warn(
                f"{folder}: trained on column {' and '.join(others)}, not {' and '.join(used)}",
                fix="Check --text_column, --text_pair_column",
            )


def _is_header(
    rows: Sequence[Row],
    positions: Mapping[str, int],
    labels: LabelParser,
    training_header: Sequence[str] | None,
) -> bool:
    """Guesses whether the first row is a header; warns if it reads a header-like row as data.

    In a table without labels, the row is a header only if it equals the training file's: if data
    were mistaken for a header, its prediction would be missing.
    """
    position = positions_in(positions.get("label", positions["text"]))[0]
    first, *others = (row.cells[position] for row in rows)
    if "label" in positions and _is_label_name(first, others, labels):
        return True
    cells, names = rows[0].cells, training_header or []
    indices = [i for name, p in positions.items() if name != "id" for i in positions_in(p)]
    if [cells[i].strip() for i in indices] == [names[i] for i in indices if i < len(names)]:
        return True
    looks_like_name = bool(COLUMN_NAME.fullmatch(first)) and first not in others
    if "label" not in positions and training_header != []:
        # A single word above mostly longer texts is probably a name.
        num_longer = sum(len(other.split()) > 1 or len(other) > 4 * len(first) for other in others)
        looks_like_name |= len(first.split()) == 1 and num_longer > len(others) / 2
    if looks_like_name:
        warn(
            f"{rows[0].place} looks like a header, but is read as data: "
            f"{shortened(brief(cells), 20)} (--has_header=yes skips it)"
        )
    return False


def _is_label_name(first: str, others: Sequence[str], labels: LabelParser) -> bool:
    """Guesses from the cells below whether the first cell of the label column is its name."""
    names = labels.split(first)
    counts = Counter(name for other in others for name in labels.split(other))
    if not names or any(name in counts for name in names):
        return False
    if labels.labels:
        return not any(name in labels.labels or is_number_like(name) for name in names)
    numbers = sum(count for name, count in counts.items() if parse_number(name) is not None)
    if numbers > counts.total() / 2 and all(map(is_number_like, counts)):
        # A number is not a name, even if it occurs only once.
        return not all(map(is_number_like, names))
    return max(counts.values(), default=0) > 1
