"""The BERT models. They use only keras and keras.ops, and so run on any Keras backend."""

# ruff: noqa: F401
from bert_tf.base.quiet import hidden_log

with hidden_log():  # of TensorFlow, if it is the backend
    import keras

from bert_tf.base.foreign_names import error_stubs
from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.configured_model import HeadFormat
from bert_tf.modeling.heads import (
    BertClassifier,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
    EncoderWithHead,
    checkpoint_name,
)
from bert_tf.modeling.layers import create_initializer, gelu, get_activation

globals().update(error_stubs("modeling"))
