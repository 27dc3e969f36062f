"""Scalars for TensorBoard."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Tells TensorBoard to show a value as a scalar.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
)


class Scalars:
    """Writes scalars for TensorBoard to a folder; the first `write` creates the file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to the curve of each value; skips non-finite values."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if math.isfinite(value):
                    # Like tf.summary.scalar, but without requiring TensorBoard.
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)

    def close(self) -> None:
        """Flushes and closes the file."""
        if self._writer is not None:
            self._writer.close()
