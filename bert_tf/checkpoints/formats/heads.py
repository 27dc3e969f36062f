"""Finds the head of a model, from its variables and metadata."""

from collections.abc import Set

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.source import Source
from bert_tf.modeling import HeadFormat
from bert_tf.modeling.heads import MASKED_LM, BertEntityClassifier
from bert_tf.options import registry

ENCODER_ONLY = "Pass --head=encoder to convert only the encoder"


def registered() -> dict[str, HeadFormat]:
    """Returns the heads of all registered models by name; imports the models' modules."""
    heads: dict[str, HeadFormat] = {}
    for entry in registry.entries().values():
        head = getattr(registry.load(entry.model), "head_format", None)
        if head:
            # A user's package cannot replace a head of ours.
            heads.setdefault(head.name, head)
    # Heads of scripts that have several, and one without a class.
    more = (BertEntityClassifier.head_format, MASKED_LM)
    return {**heads, **{head.name: head for head in more}}


def hugging_face_names(declared: HeadFormat | None) -> dict[str, str]:
    """Maps names of all heads' variables in transformers to their names in the original.

    If heads use one name for different variables, that of the head `declared` counts.
    """
    heads = [*reversed(registered().values()), *([declared] if declared else [])]
    return {theirs: ours for head in heads for ours, theirs in head.variables.items()}


def find(source: Source, stored: Set[str], requested: str = "auto") -> HeadFormat:
    """Returns the head to convert: `requested`, or if that is "auto", the head in `stored`.

    `stored` are the names of the model's variables. Some heads have the same names: the head that
    the model's metadata declare tells them apart. Raises a UserError for an unknown `requested`.
    """
    heads, declared = registered(), source.head
    if requested not in ("auto", *heads):
        raise UserError(f"--head must be one of auto, {', '.join(heads)}. Received: {requested}")
    if requested != "auto":
        head = heads[requested]
        has_same_names = declared and declared.variables.keys() == head.variables.keys()
        if declared and declared is not head and has_same_names:
            raise UserError(f"--head={requested}, but the model has a {declared.name} head")
        return head
    if source.other_head:
        raise UserError(f"the head of a {source.other_head} cannot be read", fix=ENCODER_ONLY)
    if source.model and not declared:
        problem = f"{source.model.__name__} has no attribute head_format"
        raise UserError(problem, fix=ENCODER_ONLY)
    kinds: dict[Set[str], HeadFormat] = {}
    for head in (*([declared] if declared else []), *heads.values()):
        kinds.setdefault(frozenset(head.variables), head)
    pretraining = kinds.pop(frozenset(heads["pretraining"].variables))
    present = [head for head in reversed(kinds.values()) if head.variables.keys() & stored]
    if len(present) > 1:
        listed = " and ".join(head.name for head in present)
        raise UserError(f"several heads: pass --head, one of {listed}", at=source.path)
    head = present[0] if present else heads["encoder"]
    has_more = (pretraining.variables.keys() - head.variables.keys()) & stored
    return pretraining if head is MASKED_LM and has_more else head
