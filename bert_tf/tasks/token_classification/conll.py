"""Words with labels, from files in columns, as those of the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": a word on each line, its label in the last column, a
blank line after each sentence, and `-DOCSTART-` where a document begins.

A label is `O`, or `B-`, `I-`, `E-` or `S-` with the kind of an entity: its first word, another one,
its last one (BIOES), an only one (BIOES). In IOB1, the scheme of the files of 2003, `B-` stands
only where an entity follows another one of its kind.

MSRA's corpus of Chinese names (SIGHAN 2006) also comes with a sentence on each line, cut into spans
with `/o`, `/nr` (person), `/ns` (place) or `/nt` (organization); each character becomes a word.
"""

import itertools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bert_tf import files
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
LAST = -1
"""Stands for the last column of a row, however many there are."""

# U+00A0 and its like are part of a word.
_COLUMN = re.compile("[^ \t]+")
# Files with a single kind of entities may leave its name out.
_LABEL = re.compile("O|[BIES](-.+)?")
_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_KINDS = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
_LONGEST_SENTENCE = 500
_MOST_LABELS = 1000
_SHOWN_CHARACTERS = 60


@dataclass(slots=True)
class ConllFile:
    """The words of a file, one sentence after the other.

    Attributes:
        path: the file.
        words: W of them.
        labels: of the words, as they stand in the file; None where it has none.
        lines: the line of each word, from 1 on.
        sentences: the first word of each sentence, and W.
        documents: the first word of each document, and W.
        marks: the lines that begin documents.
        num_lines: of the file.
        has_spans: whether it has a sentence on each line, as MSRA's.
    """

    path: str
    words: list[str] = field(default_factory=list)
    labels: list[str] | None = None
    lines: list[int] = field(default_factory=list)
    sentences: list[int] = field(default_factory=lambda: [0])
    documents: list[int] = field(default_factory=lambda: [0])
    marks: list[int] = field(default_factory=list)
    num_lines: int = 0
    has_spans: bool = False

    def by_sentence(self, values: Sequence[str]) -> list[list[str]]:
        """Cuts what there is of each word [W] into sentences."""
        borders = zip(self.sentences, self.sentences[1:], strict=False)
        return [list(values[first:last]) for first, last in borders]

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """The file once more, line by line: word, label if it has labels, predicted label.

        Each line that has columns has the same number of them, as the script of the shared task
        (conlleval) demands: lines that begin documents get labels, too. A line of spans becomes a
        line for each character, and a blank one.

        Args:
            predicted: a label for each word [W].
        """
        columns = [self.words, *([self.labels] if self.labels else []), predicted]
        lines: list[list[str]] = [[] for _ in range(self.num_lines)]
        for number in self.marks:
            lines[number - 1].append(" ".join([DOCUMENT] + [OUTSIDE] * (len(columns) - 1)))
        for number, *row in zip(self.lines, *columns, strict=True):
            lines[number - 1].append(" ".join(row))
        end = "\n\n" if self.has_spans else "\n"
        return "".join("\n".join(line) + end for line in lines)


def read_conll(
    path: str, token_column: int = 1, label_column: int = LAST, need_labels: bool = True
) -> ConllFile:
    """Reads a file.

    Columns stand between spaces or tabs. A byte order mark at the beginning is dropped. Warns of a
    sentence of more than 500 words.

    Args:
        path: the file, in UTF-8.
        token_column: where words are, from 1 on.
        label_column: where labels are, from 1 on, or `LAST`.
        need_labels: whether a file without a column of labels is an error.

    Raises:
        UserError: the file cannot be read or has no words, a row has not the columns of the first
            one, or the column of labels has something else in it, or more than 1,000 labels.
    """
    found = ConllFile(path)
    labels: list[str] = []
    token, label, width = 0, None, 0
    for number, line in enumerate(files.read_lines(path), start=1):
        found.num_lines = number
        columns = _COLUMN.findall(line.removeprefix("\ufeff") if number == 1 else line)
        if not columns or DOCUMENT in columns:
            _end(found.sentences, found.words)
            if columns:
                found.marks.append(number)
                _end(found.documents, found.words)
            continue
        place = f"{path}:{number}"
        if not found.words:
            # Alone on a line of a file without labels, "w/o" is a word.
            are_spans = all(map(_SPAN.fullmatch, columns))
            found.has_spans = are_spans and (need_labels or len(columns) > 1)
            if not found.has_spans:
                token, label = _places(columns, token_column, label_column, need_labels, place)
                width = len(columns)
        if found.has_spans:
            _add_spans(columns, found.words, labels, place)
            _end(found.sentences, found.words)
        else:
            if len(columns) != width:
                raise _other_width(columns, width, label, place, f"{path}:{found.lines[0]}")
            found.words.append(columns[token])
            if label is not None:
                labels.append(columns[label])
        found.lines += [number] * (len(found.words) - len(found.lines))
    if not found.words:
        raise UserError(f"{path} has no words: it needs a word and its label on each line")
    _end(found.sentences, found.words)
    _end(found.documents, found.words)
    if labels:
        found.labels = labels
    _check(found, 1 if label is None else label + 1)
    return found


def _end(splits: list[int], words: list[str]) -> None:
    """Ends a sentence or a document after the words so far, unless it is empty."""
    if splits[-1] < len(words):
        splits.append(len(words))


def _add_spans(columns: list[str], words: list[str], labels: list[str], place: str) -> None:
    """Adds the characters of a line of spans, and their labels in BIO."""
    for column in columns:
        span = _SPAN.fullmatch(column)
        if span is None:
            raise UserError(f"{place}: {_shown([column])} does not end with /o, /nr, /ns or /nt")
        kind, count = _SPAN_KINDS.get(span[2]), len(span[1])
        words += span[1]
        labels += [f"B-{kind}"] + [f"I-{kind}"] * (count - 1) if kind else [OUTSIDE] * count


def _places(
    columns: list[str], token_column: int, label_column: int, need_labels: bool, place: str
) -> tuple[int, int | None]:
    """The columns of words and of labels, from 0 on, by the first row; None for no labels."""
    width = len(columns)
    if token_column > width:
        raise UserError(
            f"{place}: --token_column={token_column}, but the row has {_count(width)}: "
            f"{_shown(columns)}"
        )
    label = width if label_column == LAST else label_column
    if label <= width and label != token_column:
        return token_column - 1, label - 1
    if need_labels:
        wanted = "last" if label_column == LAST else label_column
        raise UserError(
            f"{place}: the row has {_count(width)} and no label (--label_column={wanted}): "
            f"{_shown(columns)}. A row is a word, its label, and what else there may be, "
            "separated by spaces or tabs"
        )
    return token_column - 1, None


def _other_width(
    columns: list[str], width: int, label: int | None, place: str, first: str
) -> UserError:
    missing = " and no label" if label is not None and len(columns) <= label else ""
    return UserError(
        f"{place}: {_count(len(columns))}{missing}, but {_count(width)} in {first}: "
        f"{_shown(columns)}. Each word needs the same columns; between sentences there is a blank "
        "line"
    )


def _check(found: ConllFile, column: int) -> None:
    """Looks for missing blank lines, and for a column of labels that is another one."""
    first, last = max(itertools.pairwise(found.sentences), key=lambda pair: pair[1] - pair[0])
    if last - first > _LONGEST_SENTENCE and not found.has_spans:
        sentence = found.path, last - first, found.lines[first]
        message = "%s: one sentence of %d words, from line %d on. Are blank lines missing?"
        _logger.warning(message, *sentence)
    distinct = set(found.labels or ())
    if len(distinct) > _MOST_LABELS:
        raise UserError(
            f"{found.path}: column {column} has {len(distinct):,} different values, and at most "
            f"{_MOST_LABELS:,} can be labels. --label_column says where labels are"
        )
    wrong = {label for label in distinct if not is_label(label)}
    for number, label in zip(found.lines, found.labels or (), strict=False):
        if label not in wrong:
            continue
        raise UserError(
            f"{found.path}:{number}: {label[:_SHOWN_CHARACTERS]!r} in column {column} is not a "
            "label: O, or B-, I-, E- or S- with the kind of an entity, as B-PER. --label_column "
            "says where labels are; without this column a file has none"
        )


def _count(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"


def _shown(columns: list[str]) -> str:
    return repr(" ".join(columns)[:_SHOWN_CHARACTERS])


def to_bio(labels: Sequence[str], sentences: Sequence[int]) -> list[str]:
    """Labels of IOB1 as labels of BIO: each entity begins with `B-`.

    Labels of BIO and of BIOES stay as they are.

    Args:
        labels: of all words [W].
        sentences: the first word of each sentence, and W.
    """
    if any(label[0] in "ES" for label in set(labels)):
        return list(labels)
    found: list[str] = []
    begins = set(sentences)
    before = OUTSIDE
    for place, label in enumerate(labels):
        inside = place not in begins and before != OUTSIDE and before[1:] == label[1:]
        found.append(f"B{label[1:]}" if label[0] == "I" and not inside else label)
        before = label
    return found


def label_list(labels: Sequence[str]) -> list[str]:
    """The labels that there are, `O` first, the others in alphabetical order."""
    return sorted(set(labels), key=lambda label: (label != OUTSIDE, label))


def is_label(text: str) -> bool:
    """Whether a text is a label in BIO or BIOES."""
    return _LABEL.fullmatch(text) is not None
