"""Public alias of `bert_tf.api.predictor`: predictions of a trained model."""

# ruff: noqa: F401
from bert_tf.api.predictor import Predictor
