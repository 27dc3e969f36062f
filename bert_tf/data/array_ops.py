"""Operations on the outputs of a model that work on NumPy arrays and on tensors of Keras.

`Task.fetch` uses them, because ONNX Runtime returns NumPy arrays. NumPy arrays do not need Keras.
"""

from importlib import import_module
from typing import Any

import numpy as np


def namespace(x: Any) -> Any:
    """Returns `numpy` for a NumPy array, and otherwise `keras.ops`, which has its functions."""
    return np if isinstance(x, np.ndarray) else import_module("keras").ops


def softmax(x: Any) -> Any:
    """Normalizes the last axis to probabilities."""
    if not isinstance(x, np.ndarray):
        return namespace(x).softmax(x)
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    """Applies the logistic function to each element."""
    if not isinstance(x, np.ndarray):
        return namespace(x).sigmoid(x)
    # The usual formula overflows where x is very negative.
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def cast(x: Any, dtype: str) -> Any:
    """Converts to a different type."""
    return x.astype(dtype, copy=False) if isinstance(x, np.ndarray) else namespace(x).cast(x, dtype)


def argmax(x: Any) -> Any:
    """Returns the index of the highest value of the last axis, int32."""
    return cast(namespace(x).argmax(x, axis=-1), "int32")


def pad_rows(x: Any, length: int, value: float = 0) -> Any:
    """[B, S] -> [B, length], padded with `value`."""
    ops = namespace(x)
    missing = length - ops.shape(x)[1]
    return ops.reshape(ops.pad(x, [[0, 0], [0, missing]], constant_values=value), (-1, length))


def top_k(x: Any, k: int) -> tuple[Any, Any]:
    """Returns the k highest values of each row, descending, and their indexes, int32.

    Ties are in the order of the indexes.
    """
    if not isinstance(x, np.ndarray):
        ops = namespace(x)
        values, indexes = ops.top_k(x, k, sorted=True)
        return values, ops.cast(indexes, "int32")
    indexes = np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)
    return np.take_along_axis(x, indexes, axis=-1), indexes
