"""The losses of transformers' classes: one number for each row, or one for all, [1].

Labels of -100 do not count. Two kinds of labels are in a list, or in a dict in this order.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.modeling.losses import cross_entropy, span_loss


def _labeled(labels: Any, logits: Any) -> Any:
    return cross_entropy(logits, ops.maximum(labels, 0)) * ops.cast(labels >= 0, "float32")


def _mean(labels: Any, logits: Any) -> Any:
    count = ops.sum(ops.cast(labels >= 0, "float32"))
    return ops.reshape(ops.sum(_labeled(labels, logits)) / count, (1,))


def _values(values: Any) -> Any:
    return values.values() if isinstance(values, Mapping) else values


class TFSequenceClassificationLoss:
    """Cross entropy, or squared error if there is one label."""

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Returns the losses [B] of labels [B] and logits [B, L]."""
        if logits.shape[-1] == 1:
            difference = ops.reshape(ops.cast(labels, "float32"), (-1, 1)) - logits
            return ops.mean(ops.square(difference), axis=-1)
        return cross_entropy(logits, labels)


class TFNextSentencePredictionLoss:
    """Cross entropy."""

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Returns the losses [B] of labels [B] and logits [B, L]."""
        return _labeled(labels, logits)


TFMultipleChoiceLoss = TFNextSentencePredictionLoss


class TFTokenClassificationLoss:
    """Mean cross entropy of the tokens with labels."""

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Returns the loss [1] of labels [B, S] and logits [B, S, L]."""
        return _mean(labels, logits)


TFMaskedLanguageModelingLoss = TFTokenClassificationLoss


class TFBertPreTrainingLoss:
    """Sum of the mean losses of words and of next sentences."""

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Returns the loss [1] of two kinds of labels and logits."""
        return sum(map(_mean, _values(labels), _values(logits)))


class TFQuestionAnsweringLoss:
    """Mean cross entropy of start and end."""

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Returns the losses [B] of two positions [B] and logits [B, S]."""
        return span_loss(*_values(logits), *_values(labels))
