"""Classification of texts and text pairs: fine-tuning, evaluation and prediction."""

from bert_tf.options.registry import run as run
