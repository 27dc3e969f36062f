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
from collections.abc import Sequence
from dataclasses import dataclass, field

from bert_tf import files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.read import LAST
from bert_tf.tasks.token_classification import column_layouts, json_layouts, schemes
from bert_tf.tasks.token_classification.column_layouts import DOCUMENT, Column, Line
from bert_tf.tasks.token_classification.schemes import AUTO, ENTITIES, OUTSIDE, PLAIN
from bert_tf.tasks.token_classification.windows import split_words

_SPAN = re.compile("(.+)/(o|nr|ns|nt)")
_SPAN_LABELS = {"nr": ("B-PER", "I-PER"), "ns": ("B-LOC", "I-LOC"), "nt": ("B-ORG", "I-ORG")}
_FORMAT = "Write one word per line and no comments, in columns separated by spaces or tabs"


@dataclass(slots=True)
class ConllFile:
    """The W words of a file, with their original labels, if any, and 1-based line numbers."""

    path: str
    words: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)
    # Index of the first word of each sentence, followed by W.
    sentence_starts: list[int] = field(default_factory=lambda: [0])
    # Index of the first word of each document, followed by W.
    document_starts: list[int] = field(default_factory=lambda: [0])
    # 1-based numbers of the `-DOCSTART-` lines.
    docstart_lines: list[int] = field(default_factory=list)
    # The columns of each line; [] if each line is a sentence, as in MSRA's files and in JSON lines.
    rows: list[Line] = field(default_factory=list)
    # Index of the column of labels, if any.
    label_index: int | None = None
    # If each line is a sentence: its text, or None if it has words.
    texts: list[str | None] = field(default_factory=list)
    # The labels in the scheme that the model learns, and the scheme of `labels`.
    targets: list[str] = field(default_factory=list)
    scheme: str = ""
    # What looks wrong in the file, for `check_sentences`.
    problems: list[str] = field(default_factory=list)

    def add(
        self, number: int, words: Sequence[str], labels: Sequence[str] = (), text: str | None = None
    ) -> None:
        """Appends a sentence that is on a line of its own; it may have no words."""
        self.words += words
        self.labels += labels
        self.line_numbers += [number] * len(words)
        self.texts.append(text)
        self.sentence_starts.append(len(self.words))

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """Returns the file's lines with these columns: word, label if any, predicted label.

        `-DOCSTART-` lines also get labels, as the shared task's script (conlleval) requires. If
        each line is a sentence, it becomes a line for each word, followed by a blank line.
        """
        is_known = self.scheme == PLAIN or all(map(schemes.is_label, {*self.labels}))
        gold = self.labels if is_known else self.targets
        columns = [self.words, *([gold] if gold else []), predicted]
        words = map(" ".join, zip(*columns, strict=True))
        if not self.rows:
            sizes = (stop - start for start, stop in itertools.pairwise(self.sentence_starts))
            return "".join("\n".join(itertools.islice(words, size)) + "\n\n" for size in sizes)
        document = " ".join([DOCUMENT] + [OUTSIDE] * (len(columns) - 1))
        return "".join(
            f"{document if DOCUMENT in row else next(words) if row else ''}\n"
            for row in self.rows
            if row is not None
        )


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
        columns = token_column, label_column
        for sentence in json_layouts.read_json(path, *columns, need_labels, file.problems):
            file.add(*sentence)
    else:
        _read_lines(file, token_column, label_column, need_labels)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    _end_unit(file.sentence_starts, file.words)
    _end_unit(file.document_starts, file.words)
    if len(file.labels) < len(file.words):
        file.labels = []
    if file.labels:
        file.scheme = _choose_scheme(file, label_scheme, label_column, known)
        if file.scheme != PLAIN and not all(map(schemes.is_label, {*file.labels})):
            log.info("%s: labels such as %s are entities (%s)", path, file.labels[0], file.scheme)
        file.targets = schemes.convert(file.labels, file.sentence_starts, file.scheme)
    return file


def _read_lines(
    file: ConllFile, token_column: Column, label_column: Column, need_labels: bool
) -> None:
    path, lines = file.path, list(files.read_lines(file.path))
    lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
    rows, *numbers = column_layouts.split_lines(path, lines, token_column, label_column)
    words = ((number, row) for number, row in enumerate(rows, 1) if row and DOCUMENT not in row)
    first_number, first = next(words, (0, []))
    # If a file may have no labels, a single column such as "w/o" is a word, not a span.
    has_spans = all(map(_SPAN.fullmatch, first)) and (need_labels or len(first) > 1)
    if not (need_labels or has_spans) and column_layouts.are_sentences(lines, rows):
        for number, line in enumerate(lines, start=1):
            file.add(number, split_words(line), text=line)
        log.info("%s: each line is a sentence", path)
        return
    token_index, label_index = 0, None
    if first and not has_spans:
        place = f"{path}:{first_number}"
        token_index, label_index = _find_columns(first, *numbers, need_labels, place)
        file.rows, file.label_index = rows, label_index
    width = 1 + max(token_index, label_index or 0)
    # The number of columns varies in CoNLL-2012.
    is_ragged = any(line.startswith("#begin document") for line in lines)
    for number, row in enumerate(rows, start=1):
        if row is None:
            continue
        if not row or DOCUMENT in row:
            _end_unit(file.sentence_starts, file.words)
            if row:
                file.docstart_lines.append(number)
                _end_unit(file.document_starts, file.words)
        elif has_spans:
            file.add(number, *_split_spans(row, f"{path}:{number}"))
        elif len(row) != len(first) and not (is_ragged and len(row) >= width):
            problem = f"{counted(len(row), 'column')} ({excerpt(' '.join(row))})"
            other = f"{counted(len(first), 'column')} in {path}:{first_number}"
            raise UserError(f"{path}:{number}: {problem}, but {other}. {_FORMAT}")
        else:
            file.words.append(row[token_index])
            file.line_numbers.append(number)
            if label_index is not None:
                file.labels.append(row[label_index])


def _end_unit(starts: list[int], words: list[str]) -> None:
    """Ends the current sentence or document, given the starts of all so far, unless it is empty."""
    if starts[-1] < len(words):
        starts.append(len(words))


def _choose_scheme(file: ConllFile, wanted: str, label_column: Column, known: bool) -> str:
    """Returns the scheme of a file's labels; raises a UserError if there is none as wanted."""
    counts = Counter(file.labels)
    known_as_entities = known or wanted == ENTITIES
    if scheme := PLAIN if wanted == PLAIN else schemes.find_scheme(counts, known_as_entities):
        return scheme
    position, odd = next(
        (n, label) for n, label in enumerate(file.labels) if not schemes.is_label(label)
    )
    number, index = file.line_numbers[position], file.label_index
    row = [odd] if index is None else file.rows[number - 1] or []
    # Entities in another column, if the user did not choose one.
    others = [n for n, cell in enumerate(row, 1) if re.fullmatch("O|[BIES]-.+", cell)]
    if misfits := schemes.explain_misfits(counts):
        advice = misfits
    elif others and label_column == LAST:
        advice = f"Column {others[-1]} has one: pass --label_column={others[-1]}"
        advice += " and, as --token_column, the column of the words" * (others[-1] == 1)
    elif all(label.lstrip("+-").isdecimal() for label in counts):
        advice = "Replace numbers with the labels that they stand for, such as B-LOC"
    elif wanted == AUTO and len(counts) > 1:
        log.info("%s: labels such as %s are no entities: --label_scheme=plain", file.path, odd)
        return PLAIN
    else:
        advice = f"{_FORMAT}. Only labels of entities can be learned here: O, B-LOC and I-LOC, not "
        advice += "just LOC, and no parts of speech. For other labels, pass --label_scheme=plain"
    column = "" if index is None else f" in column {index + 1}"
    problem = f"{file.path}:{number}: {excerpt(odd)}{column} is not a label"
    problem += ". All words have it" * (len(counts) == 1)
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


def _split_spans(spans: list[str], place: str) -> tuple[list[str], list[str]]:
    """Returns the characters of a line of spans, and their labels in BIO."""
    characters, labels = [], []
    for text in spans:
        span = _SPAN.fullmatch(text)
        if span is None:
            raise UserError(f"{place}: {excerpt(text)} does not end with /o, /nr, /ns or /nt")
        first, other = _SPAN_LABELS.get(span[2], (OUTSIDE, OUTSIDE))
        characters += span[1]
        labels += [first] + [other] * (len(span[1]) - 1)
    return characters, labels


def _find_columns(
    row: list[str], token_column: int, label_column: int, need_labels: bool, place: str
) -> tuple[int, int | None]:
    """Returns the 0-based indices of the word column and of the label column, if any."""
    label_number = len(row) if label_column == LAST else label_column
    has_word = token_column <= len(row)
    has_label = 1 <= label_number <= len(row) and label_number != token_column
    if not has_word or (need_labels and not has_label):
        problem = f"{counted(len(row), 'column')} and no {'label' if has_word else 'word'}"
        flags = f"--token_column={token_column}, --label_column={label_column}"
        raise UserError(f"{place}: {problem} ({flags}): {excerpt(' '.join(row))}. {_FORMAT}")
    return token_column - 1, label_number - 1 if has_label else None
