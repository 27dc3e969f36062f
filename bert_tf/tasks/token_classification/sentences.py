"""The labeled words of a file, its sentences with their windows, and what looks wrong in them."""

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base.errors import Place, UserError, counted, note, shortened, warn
from bert_tf.tasks.token_classification.schemes import OUTSIDE, PLAIN, is_label, type_of
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
# What words may begin or end with that is not part of them, such as `en:`, `_2` or `|`.
_MARK = "[!#-+./:-@[-`{-~｜／＿-]"  # not every \W: in Hindi, vowels are
_AFFIXES = {
    "prefix": re.compile(rf"\A[^\W_]{{0,8}}{_MARK}"),
    "suffix": re.compile(rf"(?<=.)({_MARK}?\d{{1,2}}|{_MARK}[^\W_]{{0,8}})\Z"),
}
_MIN_WORDS_PER_AFFIX = 4  # distinct ones
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
            raise UserError(problem, at=Place(file.path, number))
    if len(labels) < 2:
        raise UserError(f"all labels are {file.targets[0]}; nothing to learn", at=file.path)
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


def check_sentences(
    examples: Sentences, labels: Collection[str], doc_context: bool
) -> Iterator[str]:
    """Yields a sentence for each problem of a file that has been read; `labels`: of the model."""
    file, starts = examples.file, examples.file.sentence_starts
    words, lengths = file.words, np.diff(starts)
    is_unsplit = len(examples) == 1 and len(examples.windows) > 1
    are_documents = 2 < len(file.document_starts) == len(starts)
    is_unsplit |= are_documents and lengths.mean() > _MAX_MEAN_WORDS
    if file.rows and (is_unsplit or max(lengths) > _MAX_SENTENCE_WORDS):
        line = file.line_numbers[starts[int(np.argmax(lengths))]]
        sentence = f"one sentence of {max(lengths)} words, from line {line} on"
        yield f"{sentence}. Are blank lines missing?"
    if len(examples) > 1 and len(words) < _MIN_SENTENCE_WORDS * len(examples):
        problem = f"{len(examples)} sentences have only {len(words)} words"
        yield f"{problem}. Are there blank lines between the words?"
    yield from _check_affixes({*words})
    if doc_context and not any(row and DOCUMENT in row for row in file.rows):
        yield f"--doc_context: no {DOCUMENT} line, so it is read as one document"
    name_of = str if file.scheme == PLAIN else type_of  # as the metrics compare
    yield from lint.unseen([*map(name_of, file.targets)], map(name_of, labels))


def _check_affixes(words: Collection[str]) -> Iterator[str]:
    """Yields a sentence if nearly all distinct words have a prefix or suffix in common."""
    if 2 * sum(_has_letter(word) is not None for word in words) < len(words):
        return  # Numbers and ids, such as 1-1, are no words with a prefix.
    for kind, pattern in _AFFIXES.items():
        matches = list(filter(None, map(pattern.search, words)))
        found = {match[0] for match in matches}
        is_common = len(matches) >= _MIN_SHARE_WITH_AFFIX * len(words)
        if is_common and _MIN_WORDS_PER_AFFIX * len(found) <= len(words):
            count = counted(len(matches), "distinct word", "have", of=len(words))
            flag = f"--word_{kind}={shlex.quote(','.join(sorted(found)))}"
            yield f"{count} a {kind}. If it is not part of the words, pass {flag}"


def remove_affixes(path: str, words: Sequence[str], kind: str, affixes: str) -> list[str]:
    """Removes any of `affixes`, separated by commas, from words of which more is left."""
    names = "|".join(map(re.escape, sorted(affixes.split(","), key=len, reverse=True)))
    pattern = rf"\A({names})(?=.)" if kind == "prefix" else rf"(?<=.)({names})\Z"
    parts = [re.sub(pattern, "", word) for word in words]
    count = sum(len(part) < len(word) for part, word in zip(parts, words, strict=True))
    share = f"{count:,} of {counted(len(words), 'word')}"
    tell = note if count == len(words) else warn
    tell(f"removed --word_{kind}={affixes} from {share}", at=path)
    return parts
