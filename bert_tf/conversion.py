"""Public alias of `bert_tf.checkpoints.formats`: converts models between formats."""

from bert_tf.checkpoints.formats import *  # noqa: F403
