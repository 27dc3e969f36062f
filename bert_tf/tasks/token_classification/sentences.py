"""Sentences of a CoNLL file, with their windows and label ids, and what looks wrong in them."""

import re
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
_MIN_SENTENCE_WORDS = 1.5  # on average
# Patterns of words that show a wrong format, the tolerated fraction of such words, and a message.
_ODD_WORDS = (
    (r"\d+", 0.5, "are numbers, such as {}. Check --token_column"),
    (r"(?=..).*[,;].*", 0.5, "have , or ;, such as {}. Separate columns with spaces or tabs"),
    (r'".*"".*"', 0.0, "are in CSV quotes, such as {}. Write the file without quoting"),
)


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
        return self.file.words[words], (self.file.labels or [])[words]

    @property
    def window_range(self) -> tuple[int, int]:
        """Index of the first window of these sentences, and the index after their last window."""
        first_window = self.windows.first_window
        return int(first_window[self.indices.start]), int(first_window[self.indices.stop])


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
    if not file.has_spans and (is_unsplit or lengths[longest] > _MAX_SENTENCE_WORDS):
        line = file.line_numbers[starts[longest]]
        sentence = f"one sentence of {lengths[longest]} words, from line {line} on"
        yield f"{path}: {sentence}. Are blank lines missing?"
    if len(examples) > 1 and len(words) < _MIN_SENTENCE_WORDS * len(examples):
        problem = f"{len(examples)} sentences have only {len(words)} words"
        yield f"{path}: {problem}. Are there blank lines between the words?"
    if doc_context and not file.docstart_lines:
        line = conll.DOCUMENT
        yield f"--doc_context: {path} has no {line} line; reading it as one document"
    unknown = np.flatnonzero(examples.label_ids == NO_LABEL)
    if len(unknown):
        labels = conll.to_bio(file.labels or [], starts)
        names = ", ".join(sorted({labels[index] for index in unknown}))
        problem = f"label {labels[unknown[0]]} is not in the training data, so it counts as wrong"
        number = counted(len(unknown), "such word")
        yield f"{path}:{file.line_numbers[unknown[0]]}: {problem} ({number}: {names})"
