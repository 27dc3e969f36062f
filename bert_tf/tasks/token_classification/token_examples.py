"""Sentences whose words have labels: read from a file, and as a model answers. W words."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.windows import WordWindows

# The number of a label that the model does not know.
NO_LABEL = -1


class Sentences(Sequence[int]):
    """The windows of a file's sentences, by their numbers, with what is known about their words.

    Args:
        file: the words.
        windows: of the words.
        labels: in BIO or BIOES [W]; None where there are none.
        label_ids: int32 [W], `NO_LABEL` where the model has no such label.
    """

    def __init__(
        self,
        file: conll.ConllFile,
        windows: WordWindows,
        labels: list[str] | None,
        label_ids: np.ndarray,
    ) -> None:
        self.file, self.windows = file, windows
        self.labels, self.label_ids = labels, label_ids

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: Any) -> Any:
        return range(len(self))[index]


class LabeledWords(NamedTuple):
    """Words of a text, with a label for each."""

    words: list[str]
    labels: list[str]

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Kind and words of each entity, in order, in BIO or BIOES.

        An `I-` or `E-` that goes on with none begins one.
        """
        found: list[tuple[str, list[str]]] = []
        before: str | None = None
        for word, label in zip(self.words, self.labels, strict=True):
            place, _, kind = label.partition("-")
            if place in ("I", "E") and before == kind:
                found[-1][1].append(word)
            elif label != conll.OUTSIDE:
                found.append((kind, [word]))
            before = kind if place in ("B", "I") else None
        return [(kind, " ".join(words)) for kind, words in found]
