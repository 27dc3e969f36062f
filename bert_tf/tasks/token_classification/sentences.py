"""Sentences of a CoNLL file, with their windows and label ids, and what looks wrong in them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert_tf.errors import counted
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.conll import ConllFile
from bert_tf.tasks.token_classification.windows import WordWindows

# Label id of positions without a label, and of words whose label the model does not know.
NO_LABEL = -1
_MAX_SENTENCE_WORDS = 500
# Mean above which sentences are whole documents; in CoNLL-2003 it is 14, in law texts about 40.
_MAX_MEAN_WORDS = 60
_MIN_SENTENCE_WORDS = 1.5  # on average
# Patterns of words that show a wrong format, the tolerated fraction of such words, and a message.
_ODD_WORDS = (
    (r"\d+", 0.5, "are numbers, such as {}. Check --token_column"),
    (r"(?=..).*[,;].*", 0.5, "have , or ;, such as {}. Separate columns with spaces or tabs"),
    (r'".*"".*"', 0.0, "are in CSV quotes, such as {}. Write the file without quoting"),
)
# Distinct words that are probably tags: at most so many, which repeat this often on average.
_MAX_TAGS, _MIN_REPEATS, _MIN_WORDS = 200, 20, 1000
# What words may begin or end with that is not part of them, such as `en:`, `_2` or `|`.
_AFFIXES = {
    "prefix": re.compile(r'\A[^\W_]{0,8}(?![",])[\W_]'),
    "suffix": re.compile(r'((?![",])[\W_][^\W_]{0,8}|(?<=[^\W\d])\d{1,2})\Z'),
}
_MIN_WORDS_PER_AFFIX = 4  # distinct ones


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


def _check_words(path: str, words: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if words are probably tags, or all have a prefix or suffix in common."""
    distinct = set(words)
    if len(distinct) <= _MAX_TAGS and len(words) >= max(_MIN_WORDS, _MIN_REPEATS * len(distinct)):
        share = f"only {len(distinct)} of {len(words)} words are distinct, such as {words[0]}"
        yield f"{path}: {share}. Check --token_column"
    for kind, pattern in _AFFIXES.items():
        found = {match[0] if (match := pattern.search(word)) else "" for word in distinct}
        if "" not in found and _MIN_WORDS_PER_AFFIX * len(found) <= len(distinct):
            names = shlex.quote(",".join(sorted(found)))
            problem = f"all words have the {kind} {names}. If it is not part of the words, pass"
            yield f"{path}: {problem} --word_{kind}={names}"


def check_sentences(examples: Sentences, doc_context: bool) -> Iterator[str]:
    """Yields a sentence for each problem of a file that has been read."""
    file = examples.file
    words, starts, path = file.words, file.sentence_starts, file.path
    for pattern, share, problem in _ODD_WORDS:
        odd = list(filter(re.compile(pattern).fullmatch, words))
        if len(odd) > share * len(words):
            yield f"{path}: {len(odd)} of {len(words)} words {problem.format(odd[0])}"
    lengths = np.diff(starts)
    longest = int(np.argmax(lengths))
    is_unsplit = len(examples) == 1 and len(examples.windows) > 1
    if file.rows and (is_unsplit or lengths[longest] > _MAX_SENTENCE_WORDS):
        line = file.line_numbers[starts[longest]]
        sentence = f"one sentence of {lengths[longest]} words, from line {line} on"
        yield f"{path}: {sentence}. Are blank lines missing?"
    only_documents = len(file.docstart_lines) > 1 and len(starts) == len(file.document_starts)
    if only_documents and lengths.mean() > _MAX_MEAN_WORDS:
        sentences = f"sentences of {lengths.mean():.0f} words on average, separated only by"
        yield f"{path}: {sentences} {conll.DOCUMENT}. Are blank lines missing?"
    if len(examples) > 1 and len(words) < _MIN_SENTENCE_WORDS * len(examples):
        problem = f"{len(examples)} sentences have only {len(words)} words"
        yield f"{path}: {problem}. Are there blank lines between the words?"
    yield from file.problems
    yield from _check_words(path, words)
    if doc_context and not file.docstart_lines:
        line = conll.DOCUMENT
        yield f"--doc_context: {path} has no {line} line; reading it as one document"
    unknown = np.flatnonzero(examples.label_ids == NO_LABEL)
    if len(unknown):
        labels = file.targets
        names = ", ".join(sorted({labels[index] for index in unknown}))
        problem = f"label {labels[unknown[0]]} is not in the training data, so it counts as wrong"
        number = counted(len(unknown), "such word")
        yield f"{path}:{file.line_numbers[unknown[0]]}: {problem} ({number}: {names})"
