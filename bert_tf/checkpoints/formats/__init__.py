"""Models in other formats, read and written: by one set of names, those of the original."""

import bert_tf.backend  # noqa: F401
from bert_tf.checkpoints.formats.base import Source, temporary_folder
from bert_tf.checkpoints.formats.convert import Request, convert, lowers_by_vocabulary
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.formats.heads import CHOICES as HEAD_CHOICES
from bert_tf.checkpoints.formats.inspection import describe
from bert_tf.checkpoints.formats.output_target import FORMATS
from bert_tf.checkpoints.formats.saved_model import SavedModelSource

__all__ = [
    "FORMATS",
    "HEAD_CHOICES",
    "Request",
    "SavedModelSource",
    "Source",
    "convert",
    "describe",
    "find_source",
    "lowers_by_vocabulary",
    "temporary_folder",
]
