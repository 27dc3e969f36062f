"""Weights of labels in the training loss."""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.cell_values import parse_number
from bert_tf.errors import UserError
from bert_tf.progress import log

BALANCED = "balanced"


def label_weights(spec: str, labels: Sequence[str], counts: np.ndarray) -> np.ndarray:
    """Returns the weights that `--class_weights` specifies, float32 [L], 1 for labels not named.

    With `balanced`, all labels contribute equally to the loss: a weight is the mean of the `counts`
    [L] of labels in the training set divided by the label's count; 1 if the label does not occur.
    """
    if spec == BALANCED:
        weights = np.where(counts > 0, counts.sum() / len(labels) / np.maximum(counts, 1), 1.0)
    else:
        pairs = [_parse(part, labels) for part in spec.split(",")]
        named = dict(pairs)
        if len(named) < len(pairs):
            raise UserError(f"--class_weights has a duplicate label. Received: {spec}")
        weights = np.array([named.get(label, 1.0) for label in labels])
    entries = (f"{label} {weight:.3g}" for label, weight in zip(labels, weights, strict=True))
    log.info("Weights of the labels: %.500s", ", ".join(entries))
    return weights.astype(np.float32)


def _parse(part: str, labels: Sequence[str]) -> tuple[str, float]:
    # A label may contain a colon.
    label, _, number = part.strip().rpartition(":")
    if label not in labels:
        form = f"{BALANCED}, or label:weight,label:weight with labels of {', '.join(labels)}"
        raise UserError(f"--class_weights must be {form}. Received: {part.strip()}")
    weight = parse_number(number.strip()) or 0.0
    if weight <= 0:
        raise UserError(f"--class_weights: the weight of {label} must be a number above 0: {part}")
    return label, weight
