"""Losses of the original (shape letters: see `layers.py`).

All are computed in float32, whatever the model computes in.
"""

from typing import Any

from keras import ops

# Keeps the masked-LM loss at 0, not 0/0, when no position carries weight; the original's value.
MASKED_LM_EPSILON = 1e-5


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Negative log-probability of the labels: logits [.., L] and labels [..] -> [..]."""
    logits = ops.cast(logits, "float32")
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def binary_cross_entropy(logits: Any, labels: Any) -> Any:
    """Negative log-probability that each label is there or not: both [.., L] -> [.., L]."""
    logits, labels = ops.cast(logits, "float32"), ops.cast(labels, "float32")
    return ops.softplus(logits) - labels * logits


def masked_lm_loss(logits: Any, label_ids: Any, label_weights: Any) -> tuple[Any, Any]:
    """Mean over the positions that carry weight, sum(w l) / (sum(w) + 1e-5).

    Args:
        logits: [B, P, V].
        label_ids: [B, P], the pieces that were masked.
        label_weights: [B, P], 1 for predictions and 0 for padding.

    Returns:
        The loss, a scalar, and the loss of every position [B, P], not weighted.
    """
    per_position = cross_entropy(logits, label_ids)
    label_weights = ops.cast(label_weights, "float32")
    total = ops.sum(label_weights * per_position)
    return total / (ops.sum(label_weights) + MASKED_LM_EPSILON), per_position


def span_loss(start_logits: Any, end_logits: Any, start: Any, end: Any) -> Any:
    """Half the sum of the cross entropies of start and end over all S positions.

    Padding and question are among the positions, as in the original.

    Args:
        start_logits: [B, S].
        end_logits: [B, S].
        start: [B], position of the first token of the answer.
        end: [B], position of its last token.

    Returns:
        [B].
    """
    return (cross_entropy(start_logits, start) + cross_entropy(end_logits, end)) / 2.0
