"""Reads labeled words from files with columns, as in the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

The label scheme is BIO, BIOES or IOB1, the scheme of 2003, where an entity starts with `B-` only
if it directly follows another entity of the same type.

The MSRA corpus of Chinese entities (SIGHAN 2006) has one sentence per line, split into spans such
as `TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bert_tf import files
from bert_tf.data.cell_values import counted, excerpt
from bert_tf.data.tables import LAST
from bert_tf.errors import UserError
from bert_tf.progress import log

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"

# Only spaces and tabs separate columns: other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
# Matches labels in BIO or BIOES. Without an entity type (`B`, `I`), all entities have the same,
# unnamed type.
is_label = re.compile("O|[BIES](-.+)?").fullmatch
_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_TYPES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
_MAX_SENTENCE_WORDS = 500
_MIN_SENTENCE_WORDS = 1.5  # on average
_MAX_LABELS = 1000


@dataclass(slots=True)
class ConllFile:
    """The W words of a file, with their original labels and 1-based line numbers."""

    path: str
    words: list[str] = field(default_factory=list)
    labels: list[str] | None = None
    line_numbers: list[int] = field(default_factory=list)
    # Index of the first word of each sentence, followed by W.
    sentence_starts: list[int] = field(default_factory=lambda: [0])
    # Index of the first word of each document, followed by W.
    document_starts: list[int] = field(default_factory=lambda: [0])
    # 1-based numbers of the `-DOCSTART-` lines.
    docstart_lines: list[int] = field(default_factory=list)
    num_lines: int = 0
    # Whether each line is a sentence, as in MSRA's files.
    has_spans: bool = False

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """Returns the file's lines with these columns: word, label if any, predicted label.

        `-DOCSTART-` lines also get labels, as the shared task's script (conlleval) requires. A line
        of spans becomes one line per character, followed by a blank line.
        """
        columns = [self.words, *([self.labels] if self.labels else []), predicted]
        lines: list[list[str]] = [[] for _ in range(self.num_lines)]
        for number in self.docstart_lines:
            lines[number - 1].append(" ".join([DOCUMENT] + [OUTSIDE] * (len(columns) - 1)))
        for number, *row in zip(self.line_numbers, *columns, strict=True):
            lines[number - 1].append(" ".join(row))
        end = "\n\n" if self.has_spans else "\n"
        return "".join("\n".join(line) + end for line in lines)


def read_conll(
    path: str, token_column: int = 1, label_column: int = LAST, need_labels: bool = True
) -> ConllFile:
    """Reads a UTF-8 file whose columns are separated by spaces or tabs.

    `token_column` and `label_column` count from 1. The label column may be missing unless
    `need_labels` is set. Raises a UserError for invalid files.
    """
    file = ConllFile(path)
    labels: list[str] = []
    token_index, label_index, num_columns, first_row = 0, None, 0, []
    for number, line in enumerate(files.read_lines(path), start=1):
        file.num_lines = number
        columns = _COLUMN.findall(line.removeprefix("\ufeff") if number == 1 else line)
        if not columns or DOCUMENT in columns:
            _end_unit(file.sentence_starts, file.words)
            if columns:
                file.docstart_lines.append(number)
                _end_unit(file.document_starts, file.words)
            continue
        where = f"{path}:{number}"
        if not file.words:
            # The first line with words shows the file's format. If a file may have no labels, a
            # single column such as "w/o" is a word, not a span.
            are_spans = all(map(_SPAN.fullmatch, columns))
            file.has_spans = are_spans and (need_labels or len(columns) > 1)
            token_index, label_index, num_columns, first_row = 0, 1, 2, columns
            if not file.has_spans:
                num_columns, numbers = len(columns), (token_column, label_column)
                token_index, label_index = _find_columns(columns, *numbers, need_labels, where)
        for row in _split_spans(columns, where) if file.has_spans else [columns]:
            if len(row) != num_columns:
                has_no_label = label_index is not None and len(row) <= label_index
                raise UserError(
                    f"{where}: {counted(len(row), 'column')}{' and no label' * has_no_label} "
                    f"({excerpt(' '.join(row))}), but {counted(num_columns, 'column')} in "
                    f"{path}:{file.line_numbers[0]}. Write one word per line"
                    f"{_advice(row, first_row)}"
                )
            file.words.append(row[token_index])
            file.line_numbers.append(number)
            if label_index is not None:
                labels.append(row[label_index])
        if file.has_spans:
            _end_unit(file.sentence_starts, file.words)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    _end_unit(file.sentence_starts, file.words)
    _end_unit(file.document_starts, file.words)
    file.labels = labels or None
    _check_labels(file, 1 if label_index is None else label_index + 1)
    return file


def _end_unit(starts: list[int], words: list[str]) -> None:
    """Ends the current sentence or document, given the starts of all so far, unless it is empty."""
    if starts[-1] < len(words):
        starts.append(len(words))


def _split_spans(spans: list[str], where: str) -> Iterator[list[str]]:
    """Yields a row [character, BIO label] for each character of a line of spans."""
    for text in spans:
        span = _SPAN.fullmatch(text)
        if span is None:
            raise UserError(f"{where}: {excerpt(text)} does not end with /o, /nr, /ns or /nt")
        entity_type = _SPAN_TYPES.get(span[2])
        for index, character in enumerate(span[1]):
            yield [character, f"{'I' if index else 'B'}-{entity_type}" if entity_type else OUTSIDE]


def _find_columns(
    columns: list[str], token_column: int, label_column: int, need_labels: bool, where: str
) -> tuple[int, int | None]:
    """Returns the 0-based indices of the word column and of the label column, if any."""
    row = f"the row has {counted(len(columns), 'column')}"
    label_number = len(columns) if label_column == LAST else label_column
    has_label = label_number <= len(columns) and label_number != token_column
    problem = ""
    if token_column > len(columns):
        problem = f"--token_column={token_column}, but {row}"
    elif need_labels and not has_label:
        problem = f"{row} and no label (--label_column={label_column})"
    if problem:
        raise UserError(f"{where}: {problem}: {excerpt(' '.join(columns))}{_advice(columns)}")
    return token_column - 1, label_number - 1 if has_label else None


def _check_labels(file: ConllFile, column: int) -> None:
    sentences = itertools.pairwise(file.sentence_starts)
    start, end = max(sentences, key=lambda pair: pair[1] - pair[0])
    if end - start > _MAX_SENTENCE_WORDS and not file.has_spans:
        message = "%s: one sentence of %d words, from line %d on. Are blank lines missing?"
        log.warning(message, file.path, end - start, file.line_numbers[start])
    num_sentences = len(file.sentence_starts) - 1
    if len(file.words) < _MIN_SENTENCE_WORDS * num_sentences and num_sentences > 1:
        message = "%s: %d sentences have only %d words. Are there blank lines between the words?"
        log.warning(message, file.path, num_sentences, len(file.words))
    labels = file.labels or []
    distinct = set(labels)
    if len(distinct) > _MAX_LABELS:
        problem = f"column {column} has {len(distinct):,} different values: too many for labels"
        raise UserError(f"{file.path}: {problem}. Check --label_column")
    invalid = {label for label in distinct if not is_label(label)}
    if invalid:
        index = next(index for index, label in enumerate(labels) if label in invalid)
        advice = (
            "Check --label_column, and that the scheme is BIO, IOB1 or BIOES: B-LOC and I-LOC, not "
        )
        advice += "just LOC (if it is BILOU, replace L- with E- and U- with S-)"
        if invalid == distinct:
            advice = "Write one word per line, with its label in the last column, or pass "
            advice += "--label_column. A file to predict may have just one column, the words"
        raise UserError(
            f"{file.path}:{file.line_numbers[index]}: {excerpt(labels[index])} in column "
            f"{column} is not a label such as O or B-PER. {advice}"
        )


def _advice(columns: list[str], first_row: Sequence[str] = ()) -> str:
    """Returns the end of a message about a row that looks like a comment, or like CSV."""
    if "#" in (columns[0], *first_row[:1]):
        return ". Comments (#) are not supported: remove the lines that start with #"
    return ". Separate columns with spaces or tabs" * bool(re.search(r",\w", columns[0]))


def to_bio(labels: Sequence[str], sentence_starts: Sequence[int]) -> list[str]:
    """Converts the labels of all words from IOB1 to BIO; labels in BIO or BIOES do not change."""
    if any(label[0] in "ES" for label in set(labels)):
        return list(labels)
    starts, previous = set(sentence_starts), OUTSIDE
    converted: list[str] = []
    for index, label in enumerate(labels):
        continues = index not in starts and previous != OUTSIDE and previous[1:] == label[1:]
        converted.append(f"B{label[1:]}" if label[0] == "I" and not continues else label)
        previous = label
    return converted


def label_list(labels: Sequence[str]) -> list[str]:
    """Returns the distinct labels: `O`, then all others in alphabetical order."""
    return sorted(set(labels), key=lambda label: (label != OUTSIDE, label))
