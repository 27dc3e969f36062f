"""Public alias of `bert_tf.options.registry`: the scripts, and tasks of other packages."""

# ruff: noqa: F401
from bert_tf.options.registry import SCRIPTS, register, run
