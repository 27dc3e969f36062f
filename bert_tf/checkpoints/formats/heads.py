"""Model heads: their variables, and their classes in bert_tf and transformers."""

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

_MASKED_LM = ("cls/predictions/output_bias", *names.MLM_TRANSFORM)
_NEXT_SENTENCE = ("cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights")
_SPAN = ("cls/squad/output_bias", "cls/squad/output_weights")
_CLASSIFIER = ("output_bias", "output_weights")


@dataclasses.dataclass(frozen=True)
class Head:
    """A head and the encoder that it uses."""

    name: str  # value of the flag --head
    variables: tuple[str, ...]  # names in original BERT checkpoints
    architecture: str  # name of the class in transformers
    has_pooler: bool  # whether the class in transformers has a pooler
    model: Any  # class in bert_tf; None if there is none

    @property
    def has_labels(self) -> bool:
        """Whether there is one output per label, so that the number of outputs varies."""
        return self.variables == _CLASSIFIER

    def expected(self, num_layers: int) -> list[str]:
        """Returns the names of all variables of encoder and head in original checkpoints."""
        return [*names.encoder_names(num_layers), *self.variables]


_PRETRAINING = (*_MASKED_LM, *_NEXT_SENTENCE)
HEADS = {
    head.name: head
    for head in (
        Head("pretraining", _PRETRAINING, "BertForPreTraining", True, BertPretrainer),
        Head("masked_lm", _MASKED_LM, "BertForMaskedLM", False, None),
        Head("multiple_choice", _CLASSIFIER, "BertForMultipleChoice", True, BertClassifier),
        Head("classification", _CLASSIFIER, "BertForSequenceClassification", True, BertClassifier),
        Head("span", _SPAN, "BertForQuestionAnswering", False, BertSpanLabeler),
        Head("token", _CLASSIFIER, "BertForTokenClassification", False, BertTokenClassifier),
        Head("encoder", (), "BertModel", True, BertModel),
    )
}
# Name of the class in transformers -> name of the head.
BY_ARCHITECTURE = {head.architecture: name for name, head in HEADS.items()}


def find(stored: Set[str], requested: str = "auto", hint: str | None = None) -> Head:
    """Returns the head to convert: `requested`, or if that is "auto", the head in `stored`.

    `stored` are the names of the model's variables. Three heads have the same names: `hint`, the
    head that the model's metadata declare, tells them apart.
    """
    if requested != "auto":
        if hint and hint != requested and HEADS[requested].has_labels and HEADS[hint].has_labels:
            raise UserError(f"--head={requested}, but the model has a {hint} head: omit --head")
        return HEADS[requested]
    kinds = ("masked_lm", "span", "classification")
    present = [kind for kind in kinds if set(HEADS[kind].variables) & stored]
    if len(present) > 1:
        advice = f"Pass --head={present[-1]}, or --head=encoder for no head"
        raise UserError(f"The model has several heads: {' and '.join(present)}. {advice}")
    if present == ["masked_lm"] and set(_NEXT_SENTENCE) & stored:
        return HEADS["pretraining"]
    if present == ["classification"] and hint and HEADS[hint].has_labels:
        return HEADS[hint]
    return HEADS[present[0] if present else "encoder"]
