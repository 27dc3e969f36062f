"""The classes for BERT of transformers 4 on TensorFlow: change the import line, and run."""

from bert_tf.compat.transformers.config import BertConfig
from bert_tf.compat.transformers.encoding import BatchEncoding
from bert_tf.compat.transformers.heads import (
    TFBertForMaskedLM,
    TFBertForMultipleChoice,
    TFBertForNextSentencePrediction,
    TFBertForPreTraining,
    TFBertForQuestionAnswering,
    TFBertForSequenceClassification,
    TFBertForTokenClassification,
    TFBertModel,
)
from bert_tf.compat.transformers.models import TFBertMainLayer, TFBertPreTrainedModel
from bert_tf.compat.transformers.tokenizer import BertTokenizer, BertTokenizerFast
