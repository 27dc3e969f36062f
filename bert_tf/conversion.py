"""The documented name of `bert_tf.checkpoints.formats`: models in other formats."""

from bert_tf.checkpoints.formats import *  # noqa: F403
