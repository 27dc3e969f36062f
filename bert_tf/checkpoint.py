"""Public alias of `bert_tf.checkpoints`: finds, reads, restores and writes checkpoints."""

# ruff: noqa: F401
from bert_tf.checkpoints import (
    latest,
    named_variables,
    names_in,
    read,
    resolve,
    restore_optimizer,
    save_snapshot,
    shapes,
    snapshot,
    step_of,
    summarize,
    write,
)
from bert_tf.checkpoints.model import restore
