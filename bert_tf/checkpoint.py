"""The documented name of `bert_tf.checkpoints`: find, read, restore and write checkpoints."""

from bert_tf.checkpoints import *  # noqa: F403
