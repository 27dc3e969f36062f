"""The heads of a model: their variables, and their classes here and in transformers."""

import dataclasses
from collections.abc import Set
from typing import Any

from bert_tf.checkpoints.formats import names
from bert_tf.errors import UserError
from bert_tf.modeling import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)

_MASKED_LM = ("cls/predictions/output_bias", *names.TRANSFORM)
_NEXT_SENTENCE = ("cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights")
_SPAN = ("cls/squad/output_bias", "cls/squad/output_weights")
_ROOT = ("output_bias", "output_weights")


@dataclasses.dataclass(frozen=True)
class Head:
    """A head and the encoder below it."""

    name: str  # as in `--head`
    variables: tuple[str, ...]  # the original's names
    architecture: str  # the class in transformers
    has_pooler: bool  # whether that class has a pooler
    model: Any  # the class here; None if it only comes with another head

    @property
    def has_labels(self) -> bool:
        """Whether the number of outputs is the number of labels."""
        return self.variables == _ROOT

    def expected(self, num_layers: int) -> list[str]:
        """Returns the original's names of all variables of encoder and head."""
        return [*names.encoder(num_layers), *self.variables]


_PRETRAINING = (*_MASKED_LM, *_NEXT_SENTENCE)
HEADS = {
    head.name: head
    for head in (
        Head("pretraining", _PRETRAINING, "BertForPreTraining", True, BertPretrainer),
        Head("masked_lm", _MASKED_LM, "BertForMaskedLM", False, None),
        Head("classification", _ROOT, "BertForSequenceClassification", True, BertClassifier),
        Head("span", _SPAN, "BertForQuestionAnswering", False, BertSpanLabeler),
        Head("token", _ROOT, "BertForTokenClassification", False, BertTokenClassifier),
        Head("encoder", (), "BertModel", True, BertModel),
    )
}
# Heads by the class in transformers.
BY_ARCHITECTURE = {head.architecture: name for name, head in HEADS.items()}


def find(stored: Set[str], wanted: str = "auto", hint: str | None = None) -> Head:
    """Returns the head to convert: `wanted`, or for "auto" the one whose variables are `stored`.

    Text and token classifiers have the same variables; `hint` is the head that the source declares.
    """
    if wanted != "auto":
        if hint and hint != wanted and HEADS[wanted].has_labels and HEADS[hint].has_labels:
            raise UserError(f"--head={wanted}, but the model's is {hint}: leave out --head")
        return HEADS[wanted]
    found = [n for n in ("masked_lm", "span", "classification") if set(HEADS[n].variables) & stored]
    if len(found) > 1:
        advice = f"name one, as in --head={found[-1]}, or --head=encoder for none"
        raise UserError(f"There are several heads, {' and '.join(found)}: {advice}")
    if found == ["masked_lm"] and set(_NEXT_SENTENCE) & stored:
        return HEADS["pretraining"]
    if found == ["classification"] and hint == "token":
        return HEADS["token"]
    return HEADS[found[0] if found else "encoder"]
