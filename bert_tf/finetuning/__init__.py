"""The framework of fine-tuning: the contract of a task, the run, and its output directory."""

import bert_tf.backend  # noqa: F401
