"""Splits the lines of files of labeled words into columns, without comments and other extra lines.

Lines that begin with `#` are comments in CoNLL-U (universaldependencies.org/format.html), which
also has lines for ranges (`3-4`) and empty nodes (`3.1`), in CoNLL-2012 and in many other corpora.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bert_tf.errors import UserError, excerpt
from bert_tf.progress import log
from bert_tf.tables.read import LAST
from bert_tf.tasks.token_classification.schemes import is_label
from bert_tf.tasks.token_classification.windows import split_words
from bert_tf.tokenization import is_cjk

DOCUMENT = "-DOCSTART-"

Column = int | str

# Only spaces and tabs separate columns: other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
_CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_NO_WORD_ID = re.compile(r"\d+[-.]\d+").fullmatch
_FIRST_ID = re.compile(r"[01]([-.]\d+)?").fullmatch
_NEW_DOCUMENT = re.compile(r"#\s*(begin document|newdoc)\b").match
# Names of columns, in a first line that has no words.
_HEADER = {*("form", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "tag")}
_HEADER |= {*("tags", "token", "tokens", "upos", "word", "words")}
# If fewer lines have the same number of columns, each is a sentence.
_MIN_SHARE = 0.8
# A line with more Chinese characters is a sentence; on average.
_MAX_CJK_PER_WORD = 3


@dataclass
class Rows:
    """The columns of each line; [] if the line is blank, None if it is left out.

    The columns of words and labels count from 1. `is_ragged` says that the number of columns may
    vary, as in CoNLL-2012.
    """

    lines: list[list[str] | None]
    token_column: int
    label_column: int
    is_ragged: bool


def split_lines(
    path: str, lines: Sequence[str], token_column: Column, label_column: Column
) -> Rows:
    """Splits the lines of a file, and finds the columns that are given by name.

    Raises:
        UserError: there is no column of that name.
    """
    has_tabs = any(line.count("\t") == len(_CONLLU) - 1 for line in lines)
    # In CoNLL-U, words may have spaces.
    rows = [
        list(map(hide_spaces, line.split("\t"))) if has_tabs and "\t" in line
        else _COLUMN.findall(line)
        for line in lines
    ]  # fmt: skip
    data = [row for row in rows if row and row[0][0] != "#" and DOCUMENT not in row]
    is_conllu = bool(data) and {len(row) for row in data} == {len(_CONLLU)}
    is_conllu = is_conllu and bool(_FIRST_ID(data[0][0]))
    header = list(_CONLLU) if is_conllu else _find_header(data, token_column, label_column)
    if is_conllu and (token_column, label_column) == (1, LAST):
        token_column, label_column = "form", "upos"
        log.info("%s is CoNLL-U: reading words from column 2, labels from column 4 (UPOS)", path)
    token_number = _find_number(path, header, "token", token_column)
    label_number = _find_number(path, header, "label", label_column)
    kept = _drop_comments(lines, rows, data, label_number, is_conllu)
    if header and not is_conllu:
        log.info("%s: the first line has the names of columns: %s", path, ", ".join(header))
        kept[rows.index(header)] = None
    is_ragged = any(line.startswith("#begin document") for line in lines)
    return Rows(kept, token_number, label_number, is_ragged)


def hide_spaces(word: str) -> str:
    """Returns a word that can be a column: its spaces become no-break spaces."""
    return re.sub("[ \t\r\n]", "\xa0", word) or "\xa0"


def _find_header(data: Sequence[list[str]], *columns: Column) -> list[str]:
    """Returns the first row if it has the names of columns, else []."""
    first = data[0] if data else []
    known = sum(cell.casefold() in _HEADER for cell in first)
    is_named = any(column in first for column in columns if isinstance(column, str))
    is_repeated = any(first[-1] == row[-1] for row in data[1:])
    return first if is_named or (known >= 2 and not is_repeated) else []


def _find_number(path: str, header: Sequence[str], kind: str, column: Column) -> int:
    if isinstance(column, int):
        return column
    names = [name.casefold() for name in header]
    if column.casefold() in names:
        return names.index(column.casefold()) + 1
    available = f"only {', '.join(header)}" if header else "and its first line has no names"
    advice = "Pass the number of the column, counting from 1"
    raise UserError(
        f"{path} has no column {excerpt(column)}, {available} (--{kind}_column). {advice}"
    )


def _drop_comments(
    lines: Sequence[str],
    rows: Sequence[list[str]],
    data: Sequence[list[str]],
    label_column: int,
    is_conllu: bool,
) -> list[list[str] | None]:
    """Replaces comments, ranges and empty nodes with None, and the start of documents.

    A file has comments if it begins with one. A word may also be `#`; its row has a label, and as
    many columns as others.
    """
    index = label_column - (label_column > 0)
    widths = set(map(len, data))
    labels = {row[index] for row in data if index < len(row)}

    def is_comment(row: list[str]) -> bool:
        if row[0][0] != "#" or len(row) not in widths:
            return row[0][0] == "#"
        label = row[index] if index < len(row) else ""
        return len(row) > 1 and not (label in labels or is_label(label))

    first = next(filter(None, rows), None)
    if not data or not (is_conllu or (first and is_comment(first))):
        return list(rows)
    kept: list[list[str] | None] = []
    for line, row in zip(lines, rows, strict=True):
        is_left_out = bool(row) and (is_comment(row) or (is_conllu and _NO_WORD_ID(row[0])))
        kept.append([DOCUMENT] if _NEW_DOCUMENT(line) else None if is_left_out else row)
    return kept


def are_sentences(lines: Sequence[str], rows: Sequence[list[str] | None]) -> bool:
    """Returns whether lines are plain sentences rather than words in columns."""
    texts = [line for line, row in zip(lines, rows, strict=True) if row]
    widths = Counter(len(row) for row in rows if row)
    if not texts or any("\t" in text or DOCUMENT in text for text in texts):
        return False
    if max(widths) == 1:
        num_cjk = sum(is_cjk(char) for text in texts for char in text)
        return num_cjk > _MAX_CJK_PER_WORD * len(texts)
    if len(texts) == 1:
        return len(split_words(texts[0])) > 2 and not is_label(texts[0].split()[-1])
    return widths.most_common(1)[0][1] < _MIN_SHARE * len(texts)
