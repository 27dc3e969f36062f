"""Sentences of a CoNLL file, with their windows and label ids, and what looks wrong in them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert_tf.data.cell_values import counted
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.conll import ConllFile
from bert_tf.tasks.token_classification.windows import WordWindows

# Label id of positions without a label, and of words whose label the model does not know.
NO_LABEL = -1


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
    words, path = file.words, file.path
    numbers = [word for word in words if word.isdecimal()]
    if len(numbers) > len(words) / 2:
        share = f"{len(numbers)} of {len(words)} words are numbers, such as {numbers[0]}"
        yield f"{path}: {share}. Check --token_column"
    # With labels, there is an error, because the label column is missing.
    separated = [word for word in words if len(word) > 1 and re.search("[,;]", word)]
    if file.labels is None and len(separated) > len(words) / 2:
        problem = f"most lines have commas or semicolons, such as {separated[0]}"
        yield f"{path}: {problem}. Separate columns with spaces or tabs"
    quoted = [word for word in words if re.fullmatch('".*"".*"', word)]
    if quoted:
        share = f"{len(quoted)} words are in CSV quotes, such as {quoted[0]}"
        yield f"{path}: {share}. Write the file without quoting"
    if len(examples) == 1 and len(examples.windows) > 1:
        yield f"{path}: no blank lines; reading all words as one sentence"
    if doc_context and not file.docstart_lines:
        line = conll.DOCUMENT
        yield f"--doc_context: {path} has no {line} line; reading it as one document"
    yield from _check_labels(examples)


def _check_labels(examples: Sentences) -> Iterator[str]:
    unknown = np.flatnonzero(examples.label_ids == NO_LABEL)
    if not len(unknown):
        return
    file = examples.file
    labels = conll.to_bio(file.labels or [], file.sentence_starts)
    names = ", ".join(sorted({labels[index] for index in unknown}))
    problem = f"label {labels[unknown[0]]} is not in the training data, so it counts as wrong"
    words = counted(len(unknown), "such word")
    yield f"{file.path}:{file.line_numbers[unknown[0]]}: {problem} ({words}: {names})"
