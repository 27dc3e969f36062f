"""Pre-training: learns vocabularies, creates training records, and trains."""

from bert_tf.options.registry import run as run
