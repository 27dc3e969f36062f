"""The fine-tuning framework: the task contract, the run, and its output directory."""

import bert_tf.backend  # noqa: F401
