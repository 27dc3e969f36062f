"""Splits the lines of a file into columns, and writes labels into one of them."""

import re
from collections import Counter
from collections.abc import Sequence

from bert_tf.tasks.token_classification.sentences import DOCUMENT, ConllFile

EMPTY = "\xa0"  # an empty cell, or a word that is a space
# Other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
_MIN_TABS = 9  # in CoNLL-U


def find_separator(path: str, lines: Sequence[str]) -> str:
    """Returns what separates columns: a tab, "," or ";" in CSV, or "" for spaces and tabs."""
    data = [x for x in lines if x.strip() and x[0] != "#" and DOCUMENT not in x] or [""]
    if path.lower().removesuffix(".gz").endswith(".csv"):
        return max(",;\t", key=data[0].count)
    ((by_spaces, count),) = Counter(len(_COLUMN.findall(x)) for x in data).most_common(1)
    ((by_tabs, tab_count),) = Counter(x.count("\t") + 1 for x in data).most_common(1)
    # Words may have spaces, or be one; in CoNLL-U even most of them.
    is_table = by_tabs == by_spaces > 1 or by_tabs > _MIN_TABS
    return "\t" if is_table and tab_count > count else ""


def _cell_pattern(separator: str) -> re.Pattern[str]:
    quoted = f'"(?:[^"]|"")*"(?![^{separator}])|' if separator != "\t" else ""
    other = f"(?<![^{separator}])(?:{quoted}[^{separator}]*)"
    return re.compile(other) if separator else _COLUMN


def split_columns(line: str, separator: str) -> list[str]:
    """Returns the cells of a line; [] if it is blank. U+00A0 stands for a space in a word."""
    if not line.strip(f" \t{separator}"):
        return []
    if not separator or separator not in line:
        return _COLUMN.findall(line)
    cells = [cell.strip(" ") for cell in _cell_pattern(separator).findall(line)]
    if separator != "\t":
        cells = [re.sub('^"(.*)"$', r"\1", cell).replace('""', '"') for cell in cells]
    return [cell.replace(" ", "\xa0") or EMPTY for cell in cells]


def with_labels(file: ConllFile, predicted: Sequence[str]) -> str:
    """Returns the lines of a file with columns, with predicted labels in the column of labels.

    If the file has no such column, they are in a new one, the last.
    """
    lines, index = list(file.lines), file.label_index
    for number, label in zip(file.line_numbers, predicted, strict=True):
        line = lines[number - 1]
        if index is None:
            separator = file.separator or ("\t" if "\t" in line else " ")
            lines[number - 1] = separator.join((line, label))
            continue
        start, end = list(_cell_pattern(file.separator).finditer(line))[index].span()
        lines[number - 1] = line[:start] + label + line[end:]
    return "".join(f"{line}\n" for line in lines)
