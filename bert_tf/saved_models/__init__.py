"""Exports trained models, which then run without this package: SavedModel, ONNX, LiteRT."""

from bert_tf.base.backend import tf  # noqa: F401
