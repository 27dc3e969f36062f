"""The fine-tuning framework: the base class of tasks, the run, and its output directory."""

import bert_tf.base.backend  # noqa: F401
