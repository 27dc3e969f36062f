"""Token classification (named entity recognition): fine-tuning, evaluation and prediction."""

from bert_tf.options.registry import run as run
