"""Vectors of texts: trains and evaluates bi-encoders."""

from bert_tf.options.registry import run as run
