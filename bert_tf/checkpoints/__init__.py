"""Finds, reads, restores and writes checkpoints in the original's format.

A checkpoint is the pair `<prefix>.index` and `<prefix>.data-00000-of-00001`. The folder of a
training has several, and a text file `checkpoint` that lists them. Variables are stored under the
paths of the Keras variables (see `bert_tf.modeling`), so no table maps one to the other. `formats`
has the other file formats.
"""

import bert_tf.backend  # noqa: F401
from bert_tf.checkpoints.folder import add_newest, latest, names_in, newest_readable, resolve
from bert_tf.checkpoints.model import (
    Restored,
    Snapshot,
    named_variables,
    restore,
    restore_extra,
    restore_optimizer,
    save,
    save_snapshot,
    snapshot,
    summarize,
)
from bert_tf.checkpoints.tensors import (
    GLOBAL_STEP,
    UnreadableCheckpoint,
    read,
    shapes,
    step_of,
    write,
)

__all__ = [
    "GLOBAL_STEP",
    "Restored",
    "Snapshot",
    "UnreadableCheckpoint",
    "add_newest",
    "latest",
    "named_variables",
    "names_in",
    "newest_readable",
    "read",
    "resolve",
    "restore",
    "restore_extra",
    "restore_optimizer",
    "save",
    "save_snapshot",
    "shapes",
    "snapshot",
    "step_of",
    "summarize",
    "write",
]
