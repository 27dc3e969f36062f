"""The labeled words of a file, its sentences with their windows, and what looks wrong in them."""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bert_tf.base.errors import Place, UserError, counted, note, shortened, warn
from bert_tf.tasks.token_classification.schemes import OUTSIDE, PLAIN, is_label
from bert_tf.tasks.token_classification.windows import WordWindows

# A line that begins a document has this column.
DOCUMENT = "-DOCSTART-"
# The columns of a line; [] if it is blank, None if it is a comment or the like.
Row = list[str] | None
# Label id of positions without a label, and of words whose label the model does not know.
NO_LABEL = -1
_MAX_SENTENCE_WORDS = 500
# Mean above which sentences are whole documents; in CoNLL-2003 it is 14, in law texts about 40.
_MAX_MEAN_WORDS = 60
_MIN_SENTENCE_WORDS = 1.5  # on average
# Patterns of words that show a wrong format, the tolerated fraction of such words, and a message.
_ODD_WORDS = (
    (r"\d[\d\W_]*", 0.5, "are numbers, such as {}. Check --token_column"),
    (r"(?=..).*[,;].*", 0.5, "have , or ;, such as {}. Separate columns with spaces or tabs"),
    (r".*\xa0.*", 0.5, "have spaces, such as {}. Check --token_column"),
    ("\xa0", 0.0, "are empty. pandas reads a word such as NA so, without keep_default_na=False"),
    (r'".*"".*"', 0.0, "are in CSV quotes, such as {}. Write the file without quoting"),
)
# Two labels of a word, such as B-PER|I-ORG.
_are_two = re.compile(r"[BIES]-.+[|,;/+][BIES]-.+").fullmatch
# Among fewer words, all may be parts of entities.
_MIN_LABELS = 10
# Distinct words that are probably tags: at most so many, which repeat this often on average.
_MAX_TAGS, _MIN_REPEATS, _MIN_WORDS = 200, 20, 1000
# What words may begin or end with that is not part of them, such as `en:`, `_2` or `|`.
_MARK = "[!#-+./:-@[-`{-~｜／＿-]"  # not every \W: in Hindi, vowels are
_AFFIXES = {
    "prefix": re.compile(rf"\A[^\W_]{{0,8}}{_MARK}"),
    "suffix": re.compile(rf"(?<=.)({_MARK}?\d{{1,2}}|{_MARK}[^\W_]{{0,8}})\Z"),
}
_MIN_WORDS_PER_AFFIX = 4  # distinct ones
_MAX_LISTED_AFFIXES = 10
_MAX_LISTED_LABELS = 20
_has_letter = re.compile(r"[^\W\d_]").search
# Fewer words are exceptions, such as numbers.
_MIN_SHARE_WITH_AFFIX = 0.9


@dataclass(slots=True)
class ConllFile:
    """The W words of a file, with their original labels, if any, and 1-based line numbers."""

    path: str
    # Labels of the model, if any.
    known_labels: Collection[str] = ()
    words: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)
    # Index of the first word of each sentence, followed by W.
    sentence_starts: list[int] = field(default_factory=lambda: [0])
    # Index of the first word of each document, followed by W.
    document_starts: list[int] = field(default_factory=lambda: [0])
    # The lines of a file with columns; [] if each line is a sentence, as in MSRA's files and JSON.
    lines: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    # What separates columns: a tab, "," or ";"; "" for spaces and tabs.
    separator: str = ""
    # Index of the column of labels, if any.
    label_index: int | None = None
    # The objects of a JSON file, and the keys of their labels.
    objects: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)
    # What to add to the ends of a JSON file's spans that count words, so that they are exclusive.
    end_offset: int | None = None
    # If each line is a sentence: its text, or None if it has words.
    texts: list[str | None] = field(default_factory=list)
    # The labels in the scheme that the model learns, and the scheme of `labels`.
    targets: list[str] = field(default_factory=list)
    scheme: str = ""
    # What looks wrong in the file, for `check_sentences`.
    problems: list[str] = field(default_factory=list)

    def add_sentence(
        self, number: int, words: Sequence[str], labels: Sequence[str] = (), text: str | None = None
    ) -> None:
        """Appends a sentence that is on a line of its own; it may have no words."""
        self.words += words
        self.labels += labels
        self.line_numbers += [number] * len(words)
        self.texts.append(text)
        self.sentence_starts.append(len(self.words))
        self.document_starts[1:] = [len(self.words)]

    def with_predictions(self, predicted: Sequence[str]) -> str:
        """Returns the file's lines with these columns: word, label if any, predicted label.

        `-DOCSTART-` lines also get labels, as the shared task's script (conlleval) requires. If
        each line is a sentence, it becomes a line for each word, followed by a blank line.
        """
        is_known = self.scheme == PLAIN or all(map(is_label, {*self.labels}))
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


def labels_to_learn(file: ConllFile, given: str) -> list[str]:
    """Returns the labels of a training file, or those given, separated by commas.

    Raises a UserError if there is only one, or if the file has others than those given.
    """
    first = [] if file.scheme == PLAIN else [OUTSIDE]
    found = [*first, *sorted({*file.targets} - {*first})]
    labels = [label.strip() for label in given.split(",")] if given else found
    for number, label in zip(file.line_numbers, file.targets, strict=True):
        if label not in labels:
            problem = f"label {label} is not one of {', '.join(labels)}"
            advice = "For other labels, start from a published model"
            raise UserError(problem, at=Place(file.path, number), fix=advice)
    if len(labels) < 2:
        problem = f"all labels are {file.targets[0]}; nothing to learn"
        raise UserError(problem, at=file.path, fix="Check --label_column")
    return labels


def describe_labels(file: ConllFile) -> str:
    """Returns the types of entities, or plain labels, and how often they occur; "" without any."""
    kind, labels = "labels", file.targets
    if file.scheme != PLAIN:
        kind, labels = "entities", [x[2:] or x for x in labels if x[:1] in ("B", "S")]
    counts = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    names = shortened([f"{name} ({count:,})" for name, count in counts], _MAX_LISTED_LABELS)
    return f"{kind}: {names}" if names else ""


@dataclass(frozen=True, eq=False)
class Sentences(Sequence[Any]):
    """Sentences of a file, as pairs (words, labels or [] if there are none). Slices are views."""

    file: ConllFile
    # Windows of all sentences of the file.
    windows: WordWindows
    # Label ids of all words of the file, int32 [W], some `NO_LABEL`; [0] if it has no labels.
    label_ids: np.ndarray
    # Indices, among all sentences of the file, of the sentences in this object.
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        indices = self.indices[index]
        if isinstance(indices, range):
            return replace(self, indices=indices)
        words = slice(*self.file.sentence_starts[indices : indices + 2])
        return self.file.words[words], self.file.labels[words]

    @property
    def window_range(self) -> tuple[int, int]:
        """Index of the first window of these sentences, and the index after their last window."""
        first_window = self.windows.first_window
        return int(first_window[self.indices.start]), int(first_window[self.indices.stop])


def check_sentences(examples: Sentences, doc_context: bool) -> Iterator[str]:
    """Yields a sentence for each problem of a file that has been read."""
    file, path = examples.file, examples.file.path
    words, starts, lengths = file.words, file.sentence_starts, np.diff(file.sentence_starts)
    for pattern, share, problem in _ODD_WORDS:
        odd = list(filter(re.compile(pattern).fullmatch, words))
        if len(odd) > share * len(words):
            yield f"{path}: {len(odd)} of {len(words)} words {problem.format(odd[0])}"
    is_unsplit = len(examples) == 1 and len(examples.windows) > 1
    are_documents = 2 < len(file.document_starts) == len(starts)
    is_unsplit |= are_documents and lengths.mean() > _MAX_MEAN_WORDS
    if file.rows and (is_unsplit or max(lengths) > _MAX_SENTENCE_WORDS):
        line = file.line_numbers[starts[int(np.argmax(lengths))]]
        sentence = f"one sentence of {max(lengths)} words, from line {line} on"
        yield f"{path}: {sentence}. Are blank lines missing?"
    if len(examples) > 1 and len(words) < _MIN_SENTENCE_WORDS * len(examples):
        problem = f"{len(examples)} sentences have only {len(words)} words"
        yield f"{path}: {problem}. Are there blank lines between the words?"
    yield from file.problems
    yield from _check_distinct_words(path, words)
    if file.scheme != PLAIN:
        yield from _check_labels(path, file.targets)
    if doc_context and not any(row and DOCUMENT in row for row in file.rows):
        yield f"--doc_context: {path} has no {DOCUMENT} line; reading it as one document"
    if len(unknown := np.flatnonzero(examples.label_ids == NO_LABEL)):
        labels = [file.targets[index] for index in unknown]
        problem = f"label {labels[0]} is not in the training data: the model cannot predict it"
        names = f"{counted(len(labels), 'such word')}: {', '.join(sorted({*labels}))}"
        yield f"{Place(path, file.line_numbers[unknown[0]])}: {problem} ({names})"


def _check_labels(path: str, targets: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if no label of entities is O, or if a word has two labels."""
    labels = {*targets}
    # Word segmentation has labels without types, and no O.
    has_types = any("-" in label for label in labels)
    if has_types and OUTSIDE not in labels and len(targets) >= _MIN_LABELS:
        yield f"{path}: no word has the label O, which words outside of entities need"
    if found := next(filter(_are_two, sorted(labels)), None):
        yield f"{path}: the label {found} looks like two labels. Keep one label for each word"


def _check_distinct_words(path: str, words: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if words are probably tags, or all have a prefix or suffix in common."""
    distinct = set(words)
    if len(distinct) <= _MAX_TAGS and len(words) >= max(_MIN_WORDS, _MIN_REPEATS * len(distinct)):
        share = f"only {len(distinct)} of {len(words)} words are distinct, such as {words[0]}"
        yield f"{path}: {share}. Check --token_column"
    if 2 * sum(_has_letter(word) is not None for word in distinct) < len(distinct):
        return  # Numbers and ids, such as 1-1, are no words with a prefix.
    for kind, pattern in _AFFIXES.items():
        matches = list(filter(None, map(pattern.search, distinct)))
        found = {match[0] for match in matches}
        is_common = len(matches) >= _MIN_SHARE_WITH_AFFIX * len(distinct)
        if is_common and _MIN_WORDS_PER_AFFIX * len(found) <= len(distinct):
            names = shlex.quote(",".join(sorted(found)))
            flag = f"--word_{kind}={names}"
            if len(found) > _MAX_LISTED_AFFIXES:
                names = shortened(sorted(found), _MAX_LISTED_AFFIXES)
                flag = f"them all, separated by commas, in --word_{kind}"
            count = "all" if len(matches) == len(distinct) else f"{len(matches)} of {len(distinct)}"
            problem = f"{count} words have the {kind} {names}. If it is not part of the words, pass"
            yield f"{path}: {problem} {flag}"


def remove_affixes(path: str, words: Sequence[str], kind: str, affixes: str) -> list[str]:
    """Removes any of `affixes`, separated by commas, from words of which more is left."""
    names = "|".join(map(re.escape, sorted(affixes.split(","), key=len, reverse=True)))
    pattern = rf"\A({names})(?=.)" if kind == "prefix" else rf"(?<=.)({names})\Z"
    parts = [re.sub(pattern, "", word) for word in words]
    count = sum(len(part) < len(word) for part, word in zip(parts, words, strict=True))
    tell = note if count == len(words) else warn
    share = counted(count, "word", of=len(words))
    tell(f"removed --word_{kind}={affixes} from {share}", at=path)
    return parts
