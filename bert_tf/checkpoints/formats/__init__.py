"""Models in other formats, read and written: by one set of names, those of the original."""

import bert_tf.backend  # noqa: F401
from bert_tf.conversion.base import Source, temporary_folder
from bert_tf.conversion.convert import Request, convert, lowers_by_vocabulary
from bert_tf.conversion.heads import CHOICES as HEAD_CHOICES
from bert_tf.conversion.inspection import describe
from bert_tf.conversion.places import FORMATS
from bert_tf.conversion.saved_models import SavedModelSource
from bert_tf.conversion.sources import find_source

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
