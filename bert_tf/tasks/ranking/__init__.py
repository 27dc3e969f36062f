"""Relevance of passages to queries: trains, evaluates and applies cross-encoders."""

from bert_tf.registry import run as run
