"""Detects, inspects and converts model formats. Variables are named as in the original BERT."""

import bert_tf.backend  # noqa: F401
from bert_tf.checkpoints.formats.convert import Request, convert, guess_lower_case
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.formats.inspection import describe
from bert_tf.checkpoints.formats.saved_model import SavedModelSource
from bert_tf.checkpoints.formats.source import Source, temporary_folder

__all__ = [
    "Request",
    "SavedModelSource",
    "Source",
    "convert",
    "describe",
    "find_source",
    "guess_lower_case",
    "temporary_folder",
]
