"""Finds, reads, restores and writes checkpoints in the format of the original BERT code.

A checkpoint is a pair of files, `<prefix>.index` and `<prefix>.data-00000-of-00001`. The output
folder of a training run contains several checkpoints, and a text file `checkpoint` that lists them.
The models in `bert_tf.modeling` name their Keras variables so that each variable's path is its name
in these files: no mapping table is needed. The subpackage `formats` supports other file formats.
"""

# ruff: noqa: F401
from bert_tf.base import backend
from bert_tf.checkpoints.folder import add_newest, latest, names_in, newest_readable, resolve
from bert_tf.checkpoints.tensors import GLOBAL_STEP, read, shapes, step_of, write

# These names need Keras.
_MODEL = ("Restored", "load_weights", "named_variables", "restore_training_state")
_MODEL += ("save_snapshot", "snapshot", "summarize")
__getattr__ = backend.lazy_names(__name__, dict.fromkeys(_MODEL, "model"))
