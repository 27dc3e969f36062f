"""The losses of the original BERT, and those of sentence encoders, always in float32.

The letters in shapes are those of `layers.py`, L for the number of labels, D for the size of a
vector, and P for the number of passages of a row, of which the first matches its anchor.
"""

from typing import Any

from keras import ops

# Avoids 0/0 in the masked-LM loss if there are no predictions; the original's value.
MASKED_LM_EPSILON = 1e-5
# Logit of what does not count.
_MASKED = -1e9


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


def cosines(a: Any, b: Any) -> Any:
    """Returns the cosines of vectors [B, D] and [B, D] -> [B]."""
    return ops.sum(ops.normalize(a) * ops.normalize(b), axis=-1)


def multiple_negatives(
    anchors: Any, passages: Any, text_ids: Any, scale: float, symmetric: bool = False
) -> Any:
    """Cross entropy of each anchor's positive among all passages of the batch, [B].

    As in Henderson et al. 2017, with cosines times `scale` as logits. A passage of another row is
    no negative of an anchor if it is the same text as the anchor, or as a positive of that anchor.

    Args:
        anchors: [B, D].
        passages: [B, P, D].
        text_ids: int32 [B, 1 + P], equal for equal texts: of the anchor, then of its passages; 0
            for a missing passage.
        scale: 1 / temperature.
        symmetric: whether to average with the cross entropy of each positive's anchor among all.
    """
    size = anchors.shape[-1]
    # The positives of all rows, then the other passages: [B * P, D].
    candidates = ops.reshape(ops.transpose(passages, (1, 0, 2)), (-1, size))
    logits = scale * ops.matmul(ops.normalize(anchors), ops.transpose(ops.normalize(candidates)))
    anchor_ids, positive_ids = text_ids[:, 0:1], text_ids[:, 1]
    candidate_ids = ops.reshape(ops.transpose(text_ids[:, 1:]), (1, -1))  # [1, B * P]
    same_anchor = ops.cast(anchor_ids == ops.transpose(anchor_ids), "float32")  # [B, B]
    is_positive = ops.cast(ops.expand_dims(positive_ids, 1) == candidate_ids, "float32")
    is_no_negative = (ops.matmul(same_anchor, is_positive) > 0) | (anchor_ids == candidate_ids)
    is_no_negative = is_no_negative | (candidate_ids == 0)
    rows, columns = (ops.cumsum(ops.ones_like(x)) for x in (positive_ids, candidate_ids[0]))
    is_target = ops.expand_dims(rows, 1) == columns
    logits = ops.where(is_no_negative & ops.logical_not(is_target), _MASKED, logits)  # [B, B * P]
    target = ops.sum(ops.where(is_target, logits, 0.0), axis=1)
    losses = ops.logsumexp(logits, axis=1) - target
    if symmetric:
        backward = logits[:, : ops.shape(anchors)[0]]
        losses = (losses + ops.logsumexp(backward, axis=0) - target) / 2
    return losses


def cosent(cosine: Any, scores: Any, scale: float) -> Any:
    """CoSENT (Su 2022): log(1 + sum of exp(scale (c_i - c_j)) over pairs with scores s_i < s_j).

    Cosines and scores are [B]; returns the loss of the batch for each of its rows, [B].
    """
    difference = scale * (ops.expand_dims(cosine, 1) - ops.expand_dims(cosine, 0))
    is_ordered = ops.expand_dims(scores, 1) < ops.expand_dims(scores, 0)
    loss = ops.softplus(ops.logsumexp(ops.where(is_ordered, difference, _MASKED)))
    return loss * ops.ones_like(cosine)
