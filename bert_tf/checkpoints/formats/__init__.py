"""Reads, inspects and converts models of all formats; variables have the original BERT's names."""

# ruff: noqa: F401
from bert_tf.base import backend
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.tensors import temporary_folder

# These names need Keras and TensorFlow.
_MODULES = dict.fromkeys(("convert", "guess_lower_case"), "conversion")
_MODULES |= {"find_source": "detection", "describe": "inspection"}
_MODULES |= {"SavedModelSource": "saved_model"}
__getattr__ = backend.lazy_names(__name__, _MODULES)
