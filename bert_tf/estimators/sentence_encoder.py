"""Public alias of `bert_tf.api.sentence_encoder`: sentence vectors."""

from bert_tf.api.sentence_encoder import SentenceEncoder as SentenceEncoder
