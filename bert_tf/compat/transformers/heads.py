"""The TensorFlow classes of transformers 4 for BERT."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.compat.transformers import losses
from bert_tf.compat.transformers.model import TFBertPreTrainedModel
from bert_tf.modeling import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.modeling.heads import MASKED_LM
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

_register = keras.saving.register_keras_serializable(package="bert_tf.transformers")


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
class TFBertForSequenceClassification(losses.TFSequenceClassificationLoss, _LabelModel):
    """Classifies texts, or with one label predicts a number: `logits` [B, L]; labels [B]."""

    model_class = BertClassifier
    is_pooled = True


@_register
class TFBertForMultipleChoice(losses.TFMultipleChoiceLoss, _LabelModel):
    """Scores choices: inputs [B, C, S], `logits` [B, C]; labels [B]."""

    model_class = BertMultipleChoice
    is_pooled = True

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        (logits,) = super()._predict_head(encoded, inputs, seed, training)
        return [ops.reshape(logits, (-1, ops.shape(inputs["input_ids"])[1]))]


@_register
class TFBertForTokenClassification(losses.TFTokenClassificationLoss, _LabelModel):
    """Classifies tokens: `logits` [B, S, L]; labels [B, S], -100 for tokens without one."""

    model_class = BertTokenClassifier
    has_pooler = False


@_register
class TFBertForQuestionAnswering(losses.TFQuestionAnsweringLoss, TFBertPreTrainedModel):
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
class TFBertForPreTraining(losses.TFBertPreTrainingLoss, _PretrainedHeads):
    """`prediction_logits` [B, S, V] and `seq_relationship_logits` [B, 2]."""

    head_outputs = ("prediction_logits", "seq_relationship_logits")
    label_names = ("labels", "next_sentence_label")

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self._predict_words(encoded), self.nsp(encoded["pooled_output"])]


@_register
class TFBertForMaskedLM(losses.TFMaskedLanguageModelingLoss, _PretrainedHeads):
    """`logits` [B, S, V]; labels [B, S], -100 for tokens that are not predicted."""

    head_format = MASKED_LM
    has_pooler = False
    head_outputs = ("logits",)

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self._predict_words(encoded)]


@_register
class TFBertForNextSentencePrediction(losses.TFNextSentencePredictionLoss, _PretrainedHeads):
    """`logits` [B, 2]: class 0 means that the second text follows the first."""

    is_pooled = True
    head_outputs = ("logits",)
    label_names = ("next_sentence_label",)

    def _predict_head(self, encoded: Any, inputs: Any, seed: Any, training: Any) -> list[Any]:
        return [self.nsp(encoded["pooled_output"])]


# Classes of transformers that choose a class by the model, which always is a BERT here.
TFAutoModel = TFBertModel
TFAutoModelForMaskedLM = TFBertForMaskedLM
TFAutoModelForMultipleChoice = TFBertForMultipleChoice
TFAutoModelForNextSentencePrediction = TFBertForNextSentencePrediction
TFAutoModelForPreTraining = TFBertForPreTraining
TFAutoModelForQuestionAnswering = TFBertForQuestionAnswering
TFAutoModelForSequenceClassification = TFBertForSequenceClassification
TFAutoModelForTokenClassification = TFBertForTokenClassification
