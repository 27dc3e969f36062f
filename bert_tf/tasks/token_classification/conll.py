"""Reads words and their labels from columns, as in the files of the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

Labels are in BIO, IOB1 (the scheme of 2003, where `B-` only separates an entity from one of the
same type before it) or BIOES.

The MSRA corpus of Chinese entities (SIGHAN 2006) may have one sentence per line, in spans such as
`TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.
"""

import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bert_tf import files
from bert_tf.data.cell_values import counted
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
# The last column of a row.
LAST = -1

# Other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
# The entity type may be omitted if there is only one.
_LABEL = re.compile("O|[BIES](-.+)?")
_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_TYPES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
_MAX_SENTENCE_WORDS = 500
_MAX_LABELS = 1000
_SHOWN_CHARACTERS = 60


@dataclass(slots=True)
class ConllFile:
    """The W words of a file, with their labels as in the file and their 1-based line numbers."""

    path: str
    words: list[str] = field(default_factory=list)
    labels: list[str] | None = None
    lines: list[int] = field(default_factory=list)
    # Index of the first word of each sentence, then W.
    sentences: list[int] = field(default_factory=lambda: [0])
    # Index of the first word of each document, then W.
    documents: list[int] = field(default_factory=lambda: [0])
    # Line numbers of the `-DOCSTART-` lines.
    marks: list[int] = field(default_factory=list)
    num_lines: int = 0
    # Whether each line is a sentence, as in MSRA's files.
    has_spans: bool = False

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """Returns the lines of the file as columns: word, label if any, predicted label.

        `-DOCSTART-` lines also get labels, as the shared task's script (conlleval) requires. A line
        of spans becomes one line per character, followed by a blank line.
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
    """Reads a UTF-8 file whose columns, counted from 1, are separated by spaces or tabs.

    Raises a UserError for invalid files. Without `need_labels`, the label column may be missing.
    """
    file = ConllFile(path)
    labels: list[str] = []
    token, label, width, first = 0, None, 0, []
    for number, line in enumerate(files.read_lines(path), start=1):
        file.num_lines = number
        columns = _COLUMN.findall(line.removeprefix("\ufeff") if number == 1 else line)
        if not columns or DOCUMENT in columns:
            _end(file.sentences, file.words)
            if columns:
                file.marks.append(number)
                _end(file.documents, file.words)
            continue
        where = f"{path}:{number}"
        if not file.words:
            # In a file without labels, "w/o" is a word, not a span.
            are_spans = all(map(_SPAN.fullmatch, columns))
            file.has_spans = are_spans and (need_labels or len(columns) > 1)
            token, label, width, first = 0, 1, 2, columns
            if not file.has_spans:
                wanted, width = (token_column, label_column, need_labels), len(columns)
                token, label = _find_columns(columns, *wanted, where)
        for row in _split_spans(columns, where) if file.has_spans else [columns]:
            if len(row) != width:
                missing = " and no label" if label is not None and len(row) <= label else ""
                raise UserError(
                    f"{where}: {counted(len(row), 'column')}{missing}, but "
                    f"{counted(width, 'column')} in {path}:{file.lines[0]}: {_excerpt(row, first)}"
                )
            file.words.append(row[token])
            file.lines.append(number)
            if label is not None:
                labels.append(row[label])
        if file.has_spans:
            _end(file.sentences, file.words)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    _end(file.sentences, file.words)
    _end(file.documents, file.words)
    file.labels = labels or None
    _check_labels(file, 1 if label is None else label + 1)
    return file


def _end(starts: list[int], words: list[str]) -> None:
    """Ends a sentence or a document unless it is empty."""
    if starts[-1] < len(words):
        starts.append(len(words))


def _split_spans(spans: list[str], where: str) -> Iterator[list[str]]:
    """Yields rows of the characters of a line of spans, and their labels in BIO."""
    for text in spans:
        span = _SPAN.fullmatch(text)
        if span is None:
            raise UserError(f"{where}: {_excerpt([text])} does not end with /o, /nr, /ns or /nt")
        entity_type = _SPAN_TYPES.get(span[2])
        for index, character in enumerate(span[1]):
            yield [character, f"{'I' if index else 'B'}-{entity_type}" if entity_type else OUTSIDE]


def _find_columns(
    columns: list[str], token_column: int, label_column: int, need_labels: bool, where: str
) -> tuple[int, int | None]:
    """Returns the indices of the word column and the label column, if any."""
    row = f"the row has {counted(len(columns), 'column')}"
    if token_column > len(columns):
        raise UserError(f"{where}: --token_column={token_column}, but {row}: {_excerpt(columns)}")
    label = len(columns) if label_column == LAST else label_column
    has_label = label <= len(columns) and label != token_column
    if need_labels and not has_label:
        raise UserError(
            f"{where}: {row} and no label (--label_column={label_column}): {_excerpt(columns)}"
        )
    return token_column - 1, label - 1 if has_label else None


def _check_labels(file: ConllFile, column: int) -> None:
    """Warns about missing blank lines; raises a UserError if `column` does not have labels."""
    start, end = max(itertools.pairwise(file.sentences), key=lambda pair: pair[1] - pair[0])
    if end - start > _MAX_SENTENCE_WORDS and not file.has_spans:
        message = "%s: one sentence of %d words, from line %d on. Are blank lines missing?"
        _logger.warning(message, file.path, end - start, file.lines[start])
    labels = file.labels or []
    distinct = set(labels)
    if len(distinct) > _MAX_LABELS:
        problem = f"column {column} has {len(distinct):,} different values: too many for labels"
        raise UserError(f"{file.path}: {problem}. Check --label_column")
    invalid = {label for label in distinct if not is_label(label)}
    if invalid:
        word = next(word for word, label in enumerate(labels) if label in invalid)
        raise UserError(
            f"{file.path}:{file.lines[word]}: {_excerpt([labels[word]])} in column {column} is not "
            "a label such as O or B-PER. Check --label_column, and that the scheme is BIO, IOB1 or "
            "BIOES (in BILOU, write E- for L- and S- for U-)"
        )


def _excerpt(columns: list[str], first: Sequence[str] = ()) -> str:
    is_comment = "#" in (columns[0], *first[:1])
    advice = ". Comments (#) are not supported: remove these lines" if is_comment else ""
    return f"{' '.join(columns)[:_SHOWN_CHARACTERS]!r}{advice}"


def to_bio(labels: Sequence[str], sentences: Sequence[int]) -> list[str]:
    """Converts the labels of all words from IOB1 to BIO; those in BIO or BIOES stay as they are."""
    if any(label[0] in "ES" for label in set(labels)):
        return list(labels)
    starts, previous = set(sentences), OUTSIDE
    converted: list[str] = []
    for word, label in enumerate(labels):
        inside = word not in starts and previous != OUTSIDE and previous[1:] == label[1:]
        converted.append(f"B{label[1:]}" if label[0] == "I" and not inside else label)
        previous = label
    return converted


def label_list(labels: Sequence[str]) -> list[str]:
    """Returns the distinct labels, `O` first, the others in alphabetical order."""
    return sorted(set(labels), key=lambda label: (label != OUTSIDE, label))


def is_label(text: str) -> bool:
    """Returns whether a text is a label in BIO or BIOES."""
    return _LABEL.fullmatch(text) is not None
