"""How much each label counts in the loss of a training."""

from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.progress import log

BALANCED = "balanced"


def label_weights(asked: str, labels: Sequence[str], counts: np.ndarray) -> np.ndarray:
    """The weights that `--class_weights` asks for.

    Args:
        asked: `balanced`, for which each label has the same share of the loss: the weight of
            a label is the mean of the counts divided by its own; or `label:weight,label:weight`.
        labels: L of them.
        counts: how often each one is in the training set [L].

    Returns:
        float32 [L]; 1 for what is not named, and for labels that never come up.

    Raises:
        UserError: there is no such label, or a weight is no number above 0.
    """
    if asked == BALANCED:
        weights = np.where(counts > 0, counts.sum() / len(labels) / np.maximum(counts, 1), 1.0)
    else:
        pairs = [_parse(part, labels) for part in asked.split(",")]
        named = dict(pairs)
        if len(named) < len(pairs):
            raise UserError(f"--class_weights has a label twice. Received: {asked}")
        weights = np.array([named.get(label, 1.0) for label in labels])
    shown = ", ".join(
        f"{label} {weight:.3g}" for label, weight in zip(labels, weights, strict=True)
    )
    log.info("Weights of the labels: %.500s", shown)
    return weights.astype(np.float32)


def _parse(part: str, labels: Sequence[str]) -> tuple[str, float]:
    # A label may have a colon of its own.
    label, _, number = part.strip().rpartition(":")
    if label not in labels:
        raise UserError(
            f"--class_weights must be {BALANCED}, or label:weight,label:weight with labels of "
            f"{', '.join(labels)}. Received: {part.strip()}"
        )
    try:
        weight = float(number)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise UserError(f"--class_weights: the weight of {label} must be a number above 0: {part}")
    return label, weight
