"""Reads labeled words from files with columns, and scores entities, as in the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

The label scheme is BIO, BIOES or IOB1, the scheme of 2003, where an entity starts with `B-` only
if it directly follows another entity of the same type.

The MSRA corpus of Chinese entities (SIGHAN 2006) has one sentence per line, split into spans such
as `TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.extras import import_extra
from bert_tf.progress import log
from bert_tf.tables.read import LAST

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"

# Only spaces and tabs separate columns: other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
# Matches labels in BIO or BIOES. Without an entity type (`B`, `I`), all entities have the same,
# unnamed type.
is_label = re.compile("O|[BIES](-.+)?").fullmatch
_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_TYPES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
_FORMAT = "Write one word per line and no comments, in columns separated by spaces or tabs"
_LABEL_FORMAT = (
    "Only entities in BIO, IOB1 or BIOES can be learned: O, B-LOC and I-LOC, not LOC, numbers or "
    "parts of speech (in BILOU, replace L- with E- and U- with S-; in BMES, M- with I-). Check "
    "--label_column; a file to predict may have only words"
)
# Metric name -> its name in seqeval's report.
_SCORES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


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
    token_index, label_index, num_columns = 0, None, 0
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
            token_index, label_index, num_columns = 0, 1, 2
            if not file.has_spans:
                num_columns, numbers = len(columns), (token_column, label_column)
                token_index, label_index = _find_columns(columns, *numbers, need_labels, where)
        for row in _split_spans(columns, where) if file.has_spans else [columns]:
            if len(row) != num_columns:
                problem = f"{counted(len(row), 'column')} ({excerpt(' '.join(row))})"
                first = f"{counted(num_columns, 'column')} in {path}:{file.line_numbers[0]}"
                raise UserError(f"{where}: {problem}, but {first}. {_FORMAT}")
            file.words.append(row[token_index])
            file.line_numbers.append(number)
            if label_index is not None:
                labels.append(row[label_index])
                if not is_label(labels[-1]):
                    raise _label_error(row, label_index, where)
        if file.has_spans:
            _end_unit(file.sentence_starts, file.words)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    _end_unit(file.sentence_starts, file.words)
    _end_unit(file.document_starts, file.words)
    file.labels = labels or None
    return file


def _end_unit(starts: list[int], words: list[str]) -> None:
    """Ends the current sentence or document, given the starts of all so far, unless it is empty."""
    if starts[-1] < len(words):
        starts.append(len(words))


def _label_error(row: list[str], index: int, where: str) -> UserError:
    """Returns the error for a cell that is not a label."""
    label, number = row[index], index + 1
    others = [n for n, cell in enumerate(row, 1) if re.fullmatch("O|[BIES]-.+", cell)]
    advice = f"{_FORMAT}. {_LABEL_FORMAT}"
    if is_label(label[0].upper() + label[1:]):
        advice = "Write B-, I-, E-, S- and O in capitals, such as B-LOC"
    elif others:
        advice = f"Column {others[-1]} has labels: pass --label_column={others[-1]}"
    return UserError(f"{where}: {excerpt(label)} in column {number} is not a label. {advice}")


def remove_affixes(path: str, words: Sequence[str], kind: str, affixes: str) -> list[str]:
    """Removes any of `affixes`, separated by commas, from words of which more is left."""
    names = "|".join(map(re.escape, sorted(affixes.split(","), key=len, reverse=True)))
    pattern = rf"\A({names})(?=.)" if kind == "prefix" else rf"(?<=.)({names})\Z"
    shortened = [re.sub(pattern, "", word) for word in words]
    count = sum(len(word) < len(old) for word, old in zip(shortened, words, strict=True))
    share = f"{count:,} of {counted(len(words), 'word')}"
    level = logging.INFO if count == len(words) else logging.WARNING
    log.log(level, "%s: removed --word_%s=%s from %s", path, kind, affixes, share)
    return shortened


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
    label_number = len(columns) if label_column == LAST else label_column
    has_word = token_column <= len(columns)
    has_label = 1 <= label_number <= len(columns) and label_number != token_column
    if not has_word or (need_labels and not has_label):
        problem = f"{counted(len(columns), 'column')} and no {'label' if has_word else 'word'}"
        flags = f"--token_column={token_column}, --label_column={label_column}"
        row = excerpt(" ".join(columns))
        raise UserError(f"{where}: {problem} ({flags}): {row}. {_FORMAT}")
    return token_column - 1, label_number - 1 if has_label else None


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


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Scores entities as conlleval does, the script of the shared tasks; seqeval computes them.

    `gold` and `predicted` are the labels of each sentence in BIO, IOB1 or BIOES. Returns scores of
    all entities under the key "", then scores of each entity type, in alphabetical order:
    `precision`, `recall` and `f1`, each in [0, 1] and 0 if it is 0/0, and `support`, the number of
    entities in `gold`.
    """
    seqeval = import_extra("seqeval.metrics", "ner")
    labels = [[list(sentence) for sentence in sentences] for sentences in (gold, predicted)]
    report: dict[str, Any] = {"micro avg": dict.fromkeys([*_SCORES.values(), "support"], 0)}
    # Without entities, seqeval would divide by zero.
    if any(label != OUTSIDE for sentences in labels for row in sentences for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    types = sorted(report.keys() - {"micro avg", "macro avg", "weighted avg"})
    by_name = {"": report["micro avg"], **{name: report[name] for name in types}}
    return {
        name: {score: float(values[key]) for score, key in _SCORES.items()}
        | {"support": int(values["support"])}
        for name, values in by_name.items()
    }
