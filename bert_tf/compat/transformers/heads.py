"""The TensorFlow classes of transformers 4 for BERT."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.compat.transformers.model import TFBertPreTrainedModel
from bert_tf.modeling import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.modeling.heads import MASKED_LM
from bert_tf.modeling.losses import cross_entropy
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

_register = keras.saving.register_keras_serializable(package="bert_tf.transformers")


def _mean_of_labeled(logits: Any, labels: Any) -> Any:
    """Cross entropy, averaged over positions or rows with a label (-100 is none), [1]."""
    is_labeled = ops.cast(labels >= 0, "float32")
    values = cross_entropy(logits, ops.maximum(labels, 0)) * is_labeled
    return ops.reshape(ops.sum(values) / ops.sum(is_labeled), (1,))


@_register
class TFBertModel(TFBertPreTrainedModel):
    """The encoder: `last_hidden_state` [B, S, H] and `pooler_output` [B, H]."""

    model_class = BertModel
    label_names = ()

    def call(self, inputs: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Returns the outputs of `TFBertMainLayer`."""
        return self.bert(inputs, training=training, **kwargs)


class _LabelModel(TFBertPreTrainedModel):
    """A model with dropout and a linear head: `logits`."""

    head_outputs = ("logits",)

    def _add_head(self, model: Any) -> None:
        self.dropout, self.classifier = model.dropout, model.head
        settings = vars(self.config)
        rate = settings["classifier_dropout"]
        self.dropout.rate = settings["hidden_dropout_prob"] if rate is None else rate

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        x = encoded[self.model_class.encoder_output]
        return [self.classifier(self.dropout(x, seed, training=training))]


@_register
class TFBertForSequenceClassification(_LabelModel):
    """Classifies texts, or with one label predicts a number: `logits` [B, L]; labels [B]."""

    model_class = BertClassifier
    is_pooled = True

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the cross entropy of each row, or its squared error if there is one label."""
        labels, logits = self._pair(None, labels, outputs)
        if logits.shape[-1] == 1:
            difference = ops.reshape(ops.cast(labels, "float32"), (-1, 1)) - logits
            return ops.mean(ops.square(difference), axis=-1)
        return cross_entropy(logits, labels)


@_register
class TFBertForMultipleChoice(_LabelModel):
    """Scores choices: inputs [B, C, S], `logits` [B, C]; labels [B]."""

    model_class = BertMultipleChoice
    is_pooled = True

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        (logits,) = super()._predict_head(encoded, inputs, seed, training)
        return [ops.reshape(logits, (-1, ops.shape(inputs["input_ids"])[1]))]

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the cross entropy of each row."""
        labels, logits = self._pair(None, labels, outputs)
        return cross_entropy(logits, labels)


@_register
class TFBertForTokenClassification(_LabelModel):
    """Classifies tokens: `logits` [B, S, L]; labels [B, S], -100 for tokens without one."""

    model_class = BertTokenClassifier
    has_pooler = False

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the mean cross entropy of the tokens with labels, [1]."""
        labels, logits = self._pair(None, labels, outputs)
        return _mean_of_labeled(logits, labels)


@_register
class TFBertForQuestionAnswering(TFBertPreTrainedModel):
    """Finds answers: `start_logits` and `end_logits` [B, S]; labels `start_positions` etc. [B]."""

    model_class = BertSpanLabeler
    has_pooler = False
    head_outputs = ("start_logits", "end_logits")
    label_names = ("start_positions", "end_positions")

    def _add_head(self, model: Any) -> None:
        self.qa_outputs = model.head

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        logits = self.qa_outputs(encoded["sequence_output"])  # [B, S, 2]
        return [logits[:, :, 0], logits[:, :, 1]]

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the mean cross entropy of start and end, [B]."""
        positions = labels
        if isinstance(labels, Mapping):
            positions = [labels[name] for name in self.label_names]
        pairs = zip(self.head_outputs, positions, strict=True)
        return sum(cross_entropy(outputs[name], position) for name, position in pairs) / 2


class _PretrainedHeads(TFBertPreTrainedModel):
    """A model with one or both heads of pre-training."""

    model_class = BertPretrainer

    def _add_head(self, model: Any) -> None:
        self.nsp, self.mlm = model.next_sentence, model.masked_lm
        self.nsp.trainable = "next_sentence_label" in self.label_names
        self.mlm.trainable = "labels" in self.label_names
        model.bert.pooler.trainable = self.nsp.trainable

    def _predict_words(self, encoded: Mapping[str, Any]) -> Any:
        hidden = encoded["sequence_output"]
        batch_size, length = ops.shape(hidden)[:2]
        positions = ops.broadcast_to(ops.arange(length), (batch_size, length))
        return self.mlm(hidden, positions, self.bert.embeddings.word_embeddings)


@_register
class TFBertForPreTraining(_PretrainedHeads):
    """`prediction_logits` [B, S, V] and `seq_relationship_logits` [B, 2]."""

    head_outputs = ("prediction_logits", "seq_relationship_logits")
    label_names = ("labels", "next_sentence_label")

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self._predict_words(encoded), self.nsp(encoded["pooled_output"])]

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the sum of both means over labels that are not -100, [1]."""
        pairs = zip(self.head_outputs, self.label_names, strict=True)
        return sum(_mean_of_labeled(outputs[logits], labels[name]) for logits, name in pairs)


@_register
class TFBertForMaskedLM(_PretrainedHeads):
    """`logits` [B, S, V]; labels [B, S], -100 for tokens that are not predicted."""

    head_format = MASKED_LM
    has_pooler = False
    head_outputs = ("logits",)

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self._predict_words(encoded)]

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the mean cross entropy of the tokens with labels, [1]."""
        labels, logits = self._pair(None, labels, outputs)
        return _mean_of_labeled(logits, labels)


@_register
class TFBertForNextSentencePrediction(_PretrainedHeads):
    """`logits` [B, 2]: class 0 means that the second text follows the first."""

    is_pooled = True
    head_outputs = ("logits",)
    label_names = ("next_sentence_label",)

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self.nsp(encoded["pooled_output"])]

    def hf_compute_loss(self, labels: Any, outputs: Any) -> Any:
        """Returns the cross entropy of each row; 0 with the label -100."""
        labels, logits = self._pair(None, labels, outputs)
        return cross_entropy(logits, ops.maximum(labels, 0)) * ops.cast(labels >= 0, "float32")
