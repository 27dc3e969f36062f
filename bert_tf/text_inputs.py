"""Public alias of `bert_tf.api.text_inputs`: encodes texts."""

# ruff: noqa: F401
from bert_tf.api.text_inputs import encode
