"""The labels that a model predicts for the words of a text, and the entities that they mark."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.tasks.token_classification.schemes import OUTSIDE
from bert_tf.tasks.token_classification.windows import locate_words


def find_entities(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Lists the entities that labels in BIO or BIOES mark: type, first word, and end (exclusive).

    As in the script of the CoNLL shared tasks (conlleval), an `I-` or `E-` that continues no entity
    begins one.
    """
    entities: list[tuple[str, int, int]] = []
    open_type: str | None = None
    for index, label in enumerate(labels):
        prefix, _, name = label.partition("-")
        if prefix in ("I", "E") and open_type == name:
            entities[-1] = (name, entities[-1][1], index + 1)
        elif label != OUTSIDE:
            entities.append((name, index, index + 1))
        open_type = name if prefix in ("B", "I") else None
    return entities


class EntitySpan(NamedTuple):
    """An entity in a text.

    Attributes:
        type: the type of the entity; "" if all have the same, unnamed type.
        text: the words of the entity, as they are in the text.
        probability: product of the probabilities of its words' labels.
        start: index of its first character in the text; if the input was a tuple, of its first
            word.
        end: index after its last character; if the input was a tuple, after its last word.
    """

    type: str
    text: str
    probability: float
    start: int
    end: int


class _Pair(NamedTuple):
    words: list[str]
    labels: list[str]


class LabeledWords(_Pair):
    """Words of a text, with a label for each: a pair (words, labels).

    Attributes:
        text: the text that was split into words; None if the input was a tuple of words.
        probabilities: the probability of each label.
        is_plain: whether labels are plain, and do not mark entities.
    """

    text: str | None = None
    probabilities: Sequence[float] = ()
    is_plain: bool = False

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Type and text of each entity, with its words separated by spaces."""
        return [(x.type, x.text) for x in self._locate(None)]

    @property
    def spans(self) -> list[EntitySpan]:
        """The entities with their probabilities and places in the input."""
        return self._locate(self.text)

    def to_json(self) -> str:
        """Returns a line of JSON with the text and its entities, as doccano writes them.

        If the input had words, the text is these words, separated by spaces.
        """
        text = " ".join(self.words) if self.text is None else self.text
        entities = [
            {"start": x.start, "end": x.end, "label": x.type, "text": x.text}
            | {"probability": round(x.probability, 6)}
            for x in self._locate(text)
        ]
        return json.dumps({"text": text, "entities": entities}, ensure_ascii=False) + "\n"

    def _locate(self, text: str | None) -> list[EntitySpan]:
        """Lists the entities with their places in a text; None: with the numbers of their words."""
        places = [(n, n + 1) for n in range(len(self.words))]
        if text is not None:
            places = locate_words(self.words, text)
        spans = []
        for name, first, stop in () if self.is_plain else find_entities(self.labels):
            start, end = places[first][0], places[stop - 1][1]
            quote = " ".join(self.words[first:stop]) if text is None else text[start:end]
            probability = math.prod(self.probabilities[first:stop])
            spans.append(EntitySpan(name, quote, probability, start, end))
        return spans
