"""Relevance of passages to queries: trains, evaluates and applies cross-encoders."""

from bert_tf.options.registry import run as run
