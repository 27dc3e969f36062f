"""The documented name of `bert_tf.tokenization.fast`."""

from bert_tf.tokenization.fast import BatchTokenizer as BatchTokenizer
