"""Public alias of `bert_tf.base.quiet`: imports TensorFlow without its log."""

# ruff: noqa: F401
from bert_tf.base.quiet import import_tensorflow
