"""Public alias of `bert_tf.checkpoints`: finds, reads, restores and writes checkpoints."""

# ruff: noqa: F401
from bert_tf.base.backend import tf  # imported quietly, and before Keras
from bert_tf.checkpoints import latest, names_in, read, resolve, shapes, step_of, write
from bert_tf.checkpoints.formats.detection import restore
