"""Vectors of texts: trains and evaluates bi-encoders."""

from bert_tf.registry import run as run
