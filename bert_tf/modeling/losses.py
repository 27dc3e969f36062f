"""The losses of the original BERT, always in float32.

The letters in shapes are those of `layers.py`, and L for the number of labels.
"""

from typing import Any

from keras import ops

# Avoids 0/0 in the masked-LM loss if there are no predictions; the original's value.
MASKED_LM_EPSILON = 1e-5


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Negative log-probability of the labels: logits [.., L] and labels [..] -> [..]."""
    logits = ops.cast(logits, "float32")
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def binary_cross_entropy(logits: Any, labels: Any) -> Any:
    """Negative log-probability of independent 0/1 labels: both [.., L] -> [.., L]."""
    logits, labels = ops.cast(logits, "float32"), ops.cast(labels, "float32")
    return ops.softplus(logits) - labels * logits


def span_loss(start_logits: Any, end_logits: Any, start: Any, end: Any) -> Any:
    """Mean cross entropy of start and end: logits [B, S], positions [B] -> [B].

    As in the original, the softmax over S positions includes the question and padding.
    """
    return (cross_entropy(start_logits, start) + cross_entropy(end_logits, end)) / 2.0
