"""Selects the columns of a split of a user's table, and detects a header row."""

import types
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.data.cell_values import COLUMN_NAME, counted, parse_number
from bert_tf.data.columns import find_positions, is_name
from bert_tf.data.tables import Row
from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.tasks.classification.label_inference import MISSING_NUMBER, LabelParser
from bert_tf.tasks.classification.options import ClassifierOptions

UNLABELED = "unlabeled"
_PURPOSES = ("text", "text_pair", "label", "id")
_SHOWN_NAMES = 20


class TrainingTable(NamedTuple):
    """What is known about the training file, with which other files are compared.

    Attributes:
        header: column names; [] if there are none, None if the file has not been read.
        num_columns: see `comparable_width`.
        text_columns: folder of a model whose texts should be the same -> its text columns.
    """

    header: Sequence[str] | None = None
    num_columns: int = 0
    text_columns: Mapping[str, Sequence[str]] = types.MappingProxyType({})

    def warn_about_columns(
        self, path: str, first_row: Row, header: Sequence[str], options: ClassifierOptions
    ) -> None:
        """Warns if the columns given for the texts of a file probably have something else."""
        text, pair = options.text_column or "", options.text_pair_column
        names, requested = header or first_row.cells, [*filter(None, [text, pair])]
        if not isinstance(first_row.cells, dict) and not is_name(text) and text not in header:
            if len(first_row.cells) < self.num_columns:
                counts = len(first_row.cells), self.num_columns
                message = "%s has %d columns, but the training file has %d. Check --text_column"
                log.warning(message, path, *counts)
        elif is_name(text):
            # A new file may name its columns differently, unless it also has the same names.
            for folder, columns in self.text_columns.items():
                if columns and columns != requested and {*columns} <= {*names}:
                    warn_about_texts(options, folder, columns)


def warn_about_texts(options: ClassifierOptions, folder: str, trained: Sequence[str]) -> None:
    """Warns that the texts of a run have other columns than those of the model in a folder."""
    requested = filter(None, [options.text_column, options.text_pair_column])
    message = "%s: trained on column %s, not %s. Check --text_column, --text_pair_column"
    log.warning(message, folder, " and ".join(trained), " and ".join(requested))


def comparable_width(
    first_row: Row, columns: Mapping[str, str], positions: Mapping[str, Any]
) -> int:
    """Returns the number of columns in the training file if its label precedes the text, else 0.

    In a file with fewer columns, such as one without labels, numbers then mean other columns. If
    columns are given by name, returns 0.
    """
    if isinstance(first_row.cells, dict) or "label" not in positions or is_name(columns["text"]):
        return 0
    return len(first_row.cells) if positions["label"] < positions["text"] else 0


def columns_of_split(options: ClassifierOptions, split: str) -> dict[str, str]:
    """Returns purpose -> column; `split` may be `UNLABELED`, a training set without labels."""
    unused = {"predict": {"label"}, UNLABELED: {"label", "id"}}.get(split, {"id"})
    return {
        purpose: name for purpose, name in _column_flags(options).items() if purpose not in unused
    }


def _column_flags(options: ClassifierOptions) -> dict[str, str]:
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

    If `has_header` is "auto" and all columns are given by number, guesses: the first row is a
    header if its label does not look like the labels below, or if it equals `training_header` ([]
    if the training file has no header, None if that file has not been read). Logs the header.
    """
    if isinstance(rows[0].cells, dict):
        return []
    header = [name.strip() for name in rows[0].cells]
    columns = _column_flags(options).items()
    by_name = [f"--{purpose}_column={name}" for purpose, name in columns if is_name(name)]
    if options.has_header == "no":
        if by_name:
            raise UserError(f"{by_name[0]} is a name, but --has_header=no: pass a 1-based number")
        return []
    if by_name or options.has_header == "yes":
        return header
    positions = find_positions(path, rows[0], columns_of_split(options, split), [])
    if not _is_header(rows, positions, labels, training_header):
        return []
    message = "%s: the first row is used as column names: %s (--has_header=no reads it as data)"
    log.info(message, path, _join_names(header))
    return header


def warn_about_headers(
    rows: Sequence[Row],
    columns: Mapping[str, str],
    header: Sequence[str],
    training_header: Sequence[str],
) -> None:
    """Warns about rows that repeat the header, and names that differ from the training file's."""
    repeated = [r.place for r in rows[1:] if header and [c.strip() for c in r.cells] == header]
    if repeated:
        message = "%s equals the header (%s in all). Check whether files were concatenated"
        log.warning(message, repeated[0], counted(len(repeated), "such row"))
    # Without a header, compare the first row if it shares a name with the training file's header:
    # then it is probably a header that was mistaken for data.
    names = header or [name.strip() for name in rows[0].cells]
    is_comparable = header or {*names} & {*training_header}
    name_pairs = list(zip(names, training_header, strict=False)) if is_comparable else []
    for purpose, column in columns.items():
        # Columns given by name were found in the header; ids are only read for prediction.
        is_number = purpose != "id" and not is_name(column) and column not in header
        for name, training_name in name_pairs[int(column) - 1 : int(column)] if is_number else ():
            if name.casefold() != training_name.casefold():
                message = "%s: column %s is %r, but %r in the training file. Check --%s_column"
                log.warning(message, rows[0].place, column, name, training_name, purpose)


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
        # A single word above mostly longer texts is probably a name.
        num_longer = sum(len(other.split()) > 1 or len(other) > 4 * len(first) for other in others)
        looks_like_name |= len(first.split()) == 1 and num_longer > len(others) / 2
    if looks_like_name:
        message = "%s looks like a header, but is read as data: %s (--has_header=yes skips it)"
        log.warning(message, rows[0].place, _join_names(cells))
    return False


def _is_label_name(first: str, others: Sequence[str], labels: LabelParser) -> bool:
    """Guesses from the cells below whether the first cell of the label column is its name."""
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
    # A placeholder for a missing number is not a name either; `label_inference` rejects it.
    return parse_number(label) is not None or bool(MISSING_NUMBER.fullmatch(label))


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(" ".join(name.split())[:30] for name in names[:_SHOWN_NAMES])
