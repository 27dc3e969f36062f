"""Sentences with labels, as read from a file and as predicted. W: number of words in the file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.windows import WordWindows

# The id of a missing label, or of a label that the model does not know.
NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Sentences(Sequence[Any]):
    """Sentences of a file, as pairs (words, labels); labels may be []. Slices are views."""

    file: conll.ConllFile
    # Windows of all sentences of the file.
    windows: WordWindows
    # int32 [W], `NO_LABEL` where the model has no such label; empty if the file has no labels.
    label_ids: np.ndarray
    # Indices of these sentences in the file.
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        indices = self.indices[index]
        if isinstance(indices, range):
            return replace(self, indices=indices)
        words = slice(*self.file.sentences[indices : indices + 2])
        return self.file.words[words], (self.file.labels or [])[words]

    @property
    def window_range(self) -> tuple[int, int]:
        """Range of their windows: the first one, and one past the last."""
        first_window = self.windows.first_window
        return int(first_window[self.indices.start]), int(first_window[self.indices.stop])


class LabeledWords(NamedTuple):
    """Words of a text, with a label for each."""

    words: list[str]
    labels: list[str]

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Type and text of each entity; an `I-` or `E-` that continues no entity begins one."""
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
