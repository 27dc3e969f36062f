"""Public alias of `bert_tf.tokenization.fast`: tokenizes many texts at once."""

from bert_tf.tokenization.fast import BatchTokenizer as BatchTokenizer
