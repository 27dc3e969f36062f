"""Reads labeled words from files with columns, as in the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

The MSRA corpus of Chinese entities (SIGHAN 2006) has one sentence per line, split into spans such
as `TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.

`schemes` describes the labels, and `json_layouts` how JSON lines are read.
"""

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bert_tf import files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.read import LAST
from bert_tf.tasks.token_classification import column_layouts, json_layouts, schemes
from bert_tf.tasks.token_classification.column_layouts import DOCUMENT, Column
from bert_tf.tasks.token_classification.json_layouts import JsonSentences, Sentence
from bert_tf.tasks.token_classification.schemes import AUTO, ENTITIES, OUTSIDE, PLAIN
from bert_tf.tasks.token_classification.windows import split_words

_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_TYPES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
_FORMAT = "Write one word per line and no comments, in columns separated by spaces or tabs"


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
    # Whether each line is a sentence, as in MSRA's files and in JSON lines.
    has_spans: bool = False
    # Numbers of the lines that are comments or the like.
    left_out: set[int] = field(default_factory=set)
    # Text of each sentence that was split into words here; empty if files have words.
    texts: list[str | None] = field(default_factory=list)
    # The labels in the scheme that the model learns, and the scheme of `labels`.
    targets: list[str] = field(default_factory=list)
    scheme: str = ""
    # What looks wrong in the file, for `check_sentences`.
    problems: list[str] = field(default_factory=list)
    # Label -> place and columns of its first word.
    first_rows: dict[str, tuple[str, list[str], int]] = field(default_factory=dict)

    def add(self, sentence: Sentence) -> None:
        """Appends a sentence that is on a line of its own."""
        number, words, labels, text = sentence
        for word, label in itertools.zip_longest(words, labels or ()):
            self.add_word(number, word, label, [label])
        self.num_lines, self.has_spans = number, True
        if text is not None:
            self.texts.append(text)
        # A text without words is an empty sentence.
        self.sentence_starts.append(len(self.words))

    def add_word(
        self, number: int, word: str, label: str | None, row: list[str], index: int = 0
    ) -> None:
        """Appends the word of a line, its label if any, and the columns with the label's index."""
        self.words.append(word)
        self.line_numbers.append(number)
        if label is not None:
            self.labels = self.labels or []
            self.labels.append(label)
            self.first_rows.setdefault(label, (f"{self.path}:{number}", row, index))

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """Returns the file's lines with these columns: word, label if any, predicted label.

        `-DOCSTART-` lines also get labels, as the shared task's script (conlleval) requires. A line
        of spans becomes one line per character, followed by a blank line.
        """
        is_known = self.scheme == PLAIN or all(map(schemes.is_label, {*(self.labels or ())}))
        gold = self.labels if is_known else self.targets
        columns = [self.words, *([gold] if gold else []), predicted]
        lines: list[list[str]] = [[] for _ in range(self.num_lines)]
        for number in self.docstart_lines:
            lines[number - 1].append(" ".join([DOCUMENT] + [OUTSIDE] * (len(columns) - 1)))
        for number, *row in zip(self.line_numbers, *columns, strict=True):
            lines[number - 1].append(" ".join(row))
        end = "\n\n" if self.has_spans else "\n"
        kept = (line for n, line in enumerate(lines, 1) if n not in self.left_out)
        return "".join("\n".join(line) + end for line in kept)


def read_conll(
    path: str,
    token_column: Column = 1,
    label_column: Column = LAST,
    need_labels: bool = True,
    label_scheme: str = AUTO,
    known: bool = False,
) -> ConllFile:
    """Reads a UTF-8 file of labeled words: columns separated by spaces or tabs, or JSON lines.

    Args:
        path: the file.
        token_column: the column of words: a number, counting from 1, a name in the first line, or
            a JSON key.
        label_column: the column of labels; -1 for the last.
        need_labels: whether there must be labels. If not, the lines may also be plain sentences.
        label_scheme: "entities", "plain", or "auto", which decides by the labels.
        known: whether `label_scheme` is that of a model; then types without prefix are entities.

    Raises:
        UserError: the file is invalid, or its labels do not fit the scheme.
    """
    file = ConllFile(path)
    if path.lower().removesuffix(".gz").endswith(json_layouts.EXTENSIONS):
        sentences = JsonSentences(path, token_column, label_column, need_labels)
        for sentence in sentences:
            file.add(sentence)
        file.problems += sentences.problems()
    else:
        _read_lines(file, token_column, label_column, need_labels)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    if file.labels and len(file.labels) < len(file.words):
        file.labels = None
    _end_unit(file.sentence_starts, file.words)
    _end_unit(file.document_starts, file.words)
    if file.labels:
        file.scheme = _choose_scheme(file, label_scheme, label_column, known)
        if not all(map(schemes.is_label, file.first_rows)) and file.scheme != PLAIN:
            log.info("%s: labels such as %s are entities (%s)", path, file.labels[0], file.scheme)
        file.targets = schemes.convert(file.labels, file.sentence_starts, file.scheme)
    return file


def _read_lines(
    file: ConllFile, token_column: Column, label_column: Column, need_labels: bool
) -> None:
    path = file.path
    lines = list(files.read_lines(path))
    lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
    rows = column_layouts.split_lines(path, lines, token_column, label_column)
    first = next((row for row in rows.lines if row and DOCUMENT not in row), [])
    # If a file may have no labels, a single column such as "w/o" is a word, not a span.
    are_spans = bool(first) and all(map(_SPAN.fullmatch, first))
    file.has_spans = are_spans and (need_labels or len(first) > 1)
    if not (need_labels or file.has_spans) and column_layouts.are_sentences(lines, rows.lines):
        for number, line in enumerate(lines, start=1):
            file.add(Sentence(number, split_words(line), None, line))
        log.info("%s: each line is a sentence", path)
        return
    file.num_lines, num_columns = len(lines), len(first)
    token_index, label_index = 0, None
    for number, columns in enumerate(rows.lines, start=1):
        where = f"{path}:{number}"
        if columns is None:
            file.left_out.add(number)
        elif not columns or DOCUMENT in columns:
            _end_unit(file.sentence_starts, file.words)
            if columns:
                file.docstart_lines.append(number)
                _end_unit(file.document_starts, file.words)
        elif file.has_spans:
            for character, label in _split_spans(columns, where):
                file.add_word(number, character, label, [character, label], 1)
            _end_unit(file.sentence_starts, file.words)
        else:
            if not file.words:
                numbers = rows.token_column, rows.label_column
                token_index, label_index = _find_columns(columns, *numbers, need_labels, where)
            is_long_enough = len(columns) > max(token_index, label_index or 0)
            if len(columns) != num_columns and not (rows.is_ragged and is_long_enough):
                problem = f"{counted(len(columns), 'column')} ({excerpt(' '.join(columns))})"
                other = f"{counted(num_columns, 'column')} in {path}:{file.line_numbers[0]}"
                raise UserError(f"{where}: {problem}, but {other}. {_FORMAT}")
            label = None if label_index is None else columns[label_index]
            file.add_word(number, columns[token_index], label, columns, label_index or 0)


def _end_unit(starts: list[int], words: list[str]) -> None:
    """Ends the current sentence or document, given the starts of all so far, unless it is empty."""
    if starts[-1] < len(words):
        starts.append(len(words))


def _choose_scheme(file: ConllFile, wanted: str, label_column: Column, known: bool) -> str:
    """Returns the scheme of a file's labels; raises a UserError if there is none as wanted."""
    if wanted == PLAIN:
        return PLAIN
    counts = Counter(file.labels)
    if scheme := schemes.find_scheme(counts, known or wanted == ENTITIES):
        return scheme
    odd = [label for label in counts if not schemes.is_label(label)] or list(counts)
    where, row, index = file.first_rows[odd[0]]
    # Entities in another column, if the user did not choose one.
    others = [n for n, cell in enumerate(row, 1) if re.fullmatch("O|[BIES]-.+", cell)]
    num_marked = sum(n for x, n in counts.items() if schemes.is_marked(x) or x == OUTSIDE)
    is_lower = all(schemes.is_label(label[:1].upper() + label[1:]) for label in counts)
    advice = (
        f"{_FORMAT}. Only labels of entities can be learned here: O, B-LOC and I-LOC, not just "
    )
    advice += "LOC, and no parts of speech. For other labels, pass --label_scheme=plain"
    if is_lower:
        advice = "Write B-, I-, E-, S- and O in capitals, such as B-LOC"
    elif 2 * num_marked > counts.total() > counts[OUTSIDE]:
        advice = f"{schemes.describe_misfits(counts)}. Correct them, or pass --label_scheme=plain"
    elif others and label_column == LAST:
        advice = f"Column {others[-1]} has one: pass --label_column={others[-1]}"
        advice += " and, as --token_column, the column of the words" * (others[-1] == 1)
    elif all(label.lstrip("+-").isdecimal() for label in counts):
        advice = "Replace numbers with the labels that they stand for, such as B-LOC"
    elif wanted == AUTO and len(counts) > 1:
        log.info("%s: labels such as %s are no entities: --label_scheme=plain", file.path, odd[0])
        return PLAIN
    problem = f"{where}: {excerpt(odd[0])} in column {index + 1} is not a label"
    problem += ". All words have it" * (len(counts) == 1 and not is_lower)
    check = "Check --label_column; a file to predict may have only words"
    raise UserError(f"{problem}. {advice}. {check}")


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
