"""Public alias of `bert_tf.checkpoints`: finds, reads, restores and writes checkpoints."""

from bert_tf.checkpoints import *  # noqa: F403
from bert_tf.checkpoints.model import restore  # noqa: F401
