"""Writes trained models as SavedModels, which run without this package."""

from bert_tf.backend import tf  # noqa: F401
