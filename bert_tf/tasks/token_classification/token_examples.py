"""Sentences with labels, as read from a file and as predicted. W words of a file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.windows import WordWindows

# The id of a missing label, or of one that the model does not have.
NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Sentences(Sequence[Any]):
    """Sentences of a file, as pairs of their words and labels ([] without); slices are views."""

    file: conll.ConllFile
    # Windows of all sentences of the file.
    windows: WordWindows
    # int32 [W], `NO_LABEL` where the model has no such label; empty without labels.
    label_ids: np.ndarray
    # Which sentences of the file these are.
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        numbers = self.numbers[index]
        if isinstance(numbers, range):
            return replace(self, numbers=numbers)
        words = slice(*self.file.sentences[numbers : numbers + 2])
        return self.file.words[words], (self.file.labels or [])[words]

    @property
    def window_range(self) -> tuple[int, int]:
        """The first window of these sentences, and one past their last."""
        first_window = self.windows.first_window
        return int(first_window[self.numbers.start]), int(first_window[self.numbers.stop])


class LabeledWords(NamedTuple):
    """Words of a text, with a label for each."""

    words: list[str]
    labels: list[str]

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Type and words of each entity; an `I-` or `E-` that continues none begins one."""
        entities: list[tuple[str, list[str]]] = []
        open_type: str | None = None
        for word, label in zip(self.words, self.labels, strict=True):
            prefix, _, entity_type = label.partition("-")
            if prefix in ("I", "E") and open_type == entity_type:
                entities[-1][1].append(word)
            elif label != conll.OUTSIDE:
                entities.append((entity_type, [word]))
            open_type = entity_type if prefix in ("B", "I") else None
        return [(entity_type, " ".join(words)) for entity_type, words in entities]
