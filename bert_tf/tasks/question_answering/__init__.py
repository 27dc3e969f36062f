"""Extractive question answering (SQuAD): fine-tuning, evaluation and prediction."""

from bert_tf.options.registry import run as run
