"""Checkpoints of the original: name-based files, read and written.

A checkpoint is the pair `<prefix>.index` and `<prefix>.data-00000-of-00001`. A folder of a
training run has several, and a text file `checkpoint` that names them, the newest first. The
names of the variables in it are the paths of the Keras variables (see `bert_tf.modeling`), so
there is no table that maps one to the other.
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
