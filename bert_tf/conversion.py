"""Public alias of `bert_tf.checkpoints.formats`: converts models between formats."""

# ruff: noqa: F401
from bert_tf.checkpoints.formats import convert, describe, find_source
