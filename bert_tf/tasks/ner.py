"""Public alias of `bert_tf.tasks.token_classification`."""

from bert_tf.tasks.token_classification import run as run
