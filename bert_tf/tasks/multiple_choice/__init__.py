"""Multiple choice (SWAG): fine-tuning, evaluation and prediction."""

from bert_tf.registry import run as run
