"""The heads that a model can carry: their variables, and what they are called elsewhere."""

import dataclasses
from collections.abc import Collection
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

_MASKED_WORDS = (
    "cls/predictions/output_bias",
    "cls/predictions/transform/LayerNorm/beta",
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/dense/kernel",
)
_NEXT_SENTENCE = ("cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights")
_SPAN = ("cls/squad/output_bias", "cls/squad/output_weights")
_ROOT = ("output_bias", "output_weights")


@dataclasses.dataclass(frozen=True)
class Head:
    """A head, with the encoder under it.

    Attributes:
        name: as in `--head`.
        variables: the original's names.
        architecture: class of the same model in transformers.
        has_pooler: whether that class has the pooler.
        model: class here; None where there is none without further heads.
    """

    name: str
    variables: tuple[str, ...]
    architecture: str
    has_pooler: bool
    model: Any

    @property
    def has_labels(self) -> bool:
        """Whether it has an output for each of some labels."""
        return self.variables == _ROOT

    def expected(self, num_layers: int) -> list[str]:
        """The original's names of all variables of encoder and head."""
        return [*names.encoder(num_layers), *self.variables]

    def prefix(self) -> str:
        """What stands before the encoder's names in a file of transformers."""
        return "" if self.name == "encoder" else "bert."


HEADS = {
    head.name: head
    for head in (
        Head(
            "pretraining",
            (*_MASKED_WORDS, *_NEXT_SENTENCE),
            "BertForPreTraining",
            True,
            BertPretrainer,
        ),
        Head("masked_lm", _MASKED_WORDS, "BertForMaskedLM", False, None),
        Head("classification", _ROOT, "BertForSequenceClassification", True, BertClassifier),
        Head("span", _SPAN, "BertForQuestionAnswering", False, BertSpanLabeler),
        Head("token", _ROOT, "BertForTokenClassification", False, BertTokenClassifier),
        Head("encoder", (), "BertModel", True, BertModel),
    )
}
# What a user can choose. Masked words without next sentences are found, not asked for.
CHOICES = ("auto", "pretraining", "classification", "span", "token", "encoder")


def by_architecture(architecture: str) -> Head | None:
    """The head of a class of transformers."""
    return next((head for head in HEADS.values() if head.architecture == architecture), None)


def find(stored: Collection[str], wanted: str = "auto", hint: str | None = None) -> Head:
    """The head to convert.

    Args:
        stored: the original's names of what there is.
        wanted: one of `CHOICES`.
        hint: the head that the source itself says it has.

    Raises:
        UserError: there are several.
    """
    if wanted != "auto":
        return HEADS[wanted]
    found = [
        name
        for name, variables in (
            ("masked_lm", _MASKED_WORDS),
            ("span", _SPAN),
            ("classification", _ROOT),
        )
        if any(variable in stored for variable in variables)
    ]
    if len(found) > 1:
        raise UserError(
            f"There are several heads, {' and '.join(found)}: name one, for instance "
            f"--head={found[-1]}, or --head=encoder for none"
        )
    if not found:
        return HEADS["encoder"]
    if found == ["masked_lm"] and any(name in stored for name in _NEXT_SENTENCE):
        return HEADS["pretraining"]
    # Of one text's class and its words' labels the variables are the same.
    if found == ["classification"] and hint == "token":
        return HEADS["token"]
    return HEADS[found[0]]
