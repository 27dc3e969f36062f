"""Splits the lines of files of labeled words into columns, without comments and other extra lines.

Lines that begin with `#` are comments in CoNLL-U (universaldependencies.org/format.html), which
also has lines for ranges (`3-4`) and empty nodes (`3.1`), in CoNLL-2012 and in many other corpora.
"""

import re
from collections import Counter
from collections.abc import Sequence

from bert_tf.errors import UserError, excerpt
from bert_tf.progress import log
from bert_tf.tables.read import LAST
from bert_tf.tasks.token_classification.schemes import is_label
from bert_tf.tasks.token_classification.windows import split_words
from bert_tf.tokenization import is_cjk

DOCUMENT = "-DOCSTART-"

Column = int | str
# The columns of a line; [] if the line is blank, None if it has no word.
Line = list[str] | None

# Only spaces and tabs separate columns: other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
_CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_CONLLU_ID = re.compile(r"\d+([-.]\d+)?").fullmatch
_NEW_DOCUMENT = re.compile(r"#\s*(begin document|newdoc)\b").match
# A first line with two of these has names of columns, not a word.
_NAMES = {"form", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "tag"}
_NAMES |= {"tags", "token", "tokens", "upos", "word", "words"}
# If fewer lines have the same number of columns, each is a sentence.
_MIN_SHARE = 0.8
# A line with more Chinese characters is a sentence; on average.
_MAX_CJK_PER_WORD = 3


def split_lines(
    path: str, lines: Sequence[str], token_column: Column, label_column: Column
) -> tuple[list[Line], int, int]:
    """Splits lines into columns; also returns the columns of words and labels, counted from 1.

    A line that starts a document becomes [DOCUMENT].

    Raises:
        UserError: there is no column of that name.
    """
    # In CoNLL-U, words may have spaces.
    has_tabs = any(line.count("\t") == len(_CONLLU) - 1 for line in lines)
    rows = [
        list(map(hide_spaces, line.split("\t"))) if has_tabs and "\t" in line
        else _COLUMN.findall(line)
        for line in lines
    ]  # fmt: skip
    data = [row for row in rows if row and row[0][0] != "#" and DOCUMENT not in row]
    is_conllu = all(len(row) == len(_CONLLU) and _CONLLU_ID(row[0]) for row in data)
    header = _CONLLU
    if not is_conllu or not data:
        header = _find_header(data, token_column, label_column)
    elif (token_column, label_column) == (1, LAST):
        token_column, label_column = "form", "upos"
        log.info("%s is CoNLL-U: reading words from column 2, labels from column 4 (UPOS)", path)
    token_number = _find_number(path, header, "token", token_column)
    label_number = _find_number(path, header, "label", label_column)
    _drop_comments(lines, rows, data, label_number, is_conllu=header is _CONLLU)
    if header and header is not _CONLLU:
        log.info("%s: the first line has the names of columns: %s", path, ", ".join(header))
        rows[rows.index(header)] = None
    return rows, token_number, label_number


def hide_spaces(word: str) -> str:
    """Returns a word that can be a column: its spaces become no-break spaces."""
    return re.sub("[ \t\r\n]", "\xa0", word) or "\xa0"


def _find_header(data: Sequence[list[str]], *columns: Column) -> list[str]:
    """Returns the first row if it has the names of columns, else []."""
    first = data[0] if data else []
    is_named = any(column in first for column in columns if isinstance(column, str))
    return first if is_named or sum(cell.casefold() in _NAMES for cell in first) > 1 else []


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
    rows: list[Line],
    data: Sequence[list[str]],
    label_number: int,
    is_conllu: bool,
) -> None:
    """Replaces comments, ranges and empty nodes with None, in a file that begins with a comment.

    A word may also be `#`; then its row has a label, and as many columns as others.
    """
    widths, index = {*map(len, data)}, label_number - (label_number > 0)
    labels = {label for row in data for label in row[index:][:1]}

    def is_comment(row: Line) -> bool:
        if not row or row[0][0] != "#":
            return False
        has_label = any(label in labels or is_label(label) for label in row[index:][:1])
        return len(row) not in widths or not (has_label or len(row) == 1)

    if not data or not (is_conllu or is_comment(next(filter(None, rows), None))):
        return
    for position, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if _NEW_DOCUMENT(line):
            rows[position] = [DOCUMENT]
        elif is_comment(row) or (is_conllu and row and not row[0].isdecimal()):
            rows[position] = None


def are_sentences(lines: Sequence[str], rows: Sequence[Line]) -> bool:
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
