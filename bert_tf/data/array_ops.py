"""Operations on arrays that are Keras tensors or, with the engines onnx and litert, NumPy arrays.

They do not import Keras.
"""

import sys
from typing import Any

import numpy as np


def namespace(x: Any) -> Any:
    """Returns the module to compute with: `numpy` if `x` is a NumPy array, else `keras.ops`."""
    # No import statement: AutoGraph would warn. If x is a tensor, Keras is loaded.
    return np if isinstance(x, np.ndarray) else sys.modules["keras"].ops


def softmax(x: Any) -> Any:
    """Converts logits to probabilities, which sum to 1 along the last axis."""
    if not isinstance(x, np.ndarray):
        return namespace(x).softmax(x)
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    """Applies the logistic function to each element."""
    if not isinstance(x, np.ndarray):
        return namespace(x).sigmoid(x)
    # Unlike 1 / (1 + exp(-x)), this does not overflow where x is very negative.
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def cast(x: Any, dtype: str) -> Any:
    """Converts `x` to the type `dtype`."""
    return x.astype(dtype, copy=False) if isinstance(x, np.ndarray) else namespace(x).cast(x, dtype)


def argmax(x: Any) -> Any:
    """Returns the index of the highest value along the last axis, int32."""
    return cast(namespace(x).argmax(x, axis=-1), "int32")


def rows_are_finite(x: Any) -> Any:
    """Returns 1 for each row without NaN and infinity, else 0: [B, ..] -> int32 [B]."""
    ops = namespace(x)
    return cast(ops.all(ops.isfinite(x), axis=tuple(range(1, len(x.shape)))), "int32")


def pad_rows(x: Any, length: int, value: float = 0) -> Any:
    """Pads each row at its end with `value`: [B, S] -> [B, length]."""
    ops = namespace(x)
    num_padding = length - ops.shape(x)[1]
    padded = ops.pad(x, [[0, 0], [0, num_padding]], constant_values=value)
    return ops.reshape(padded, (-1, length))  # makes the length static in a graph


def pool(x: Any, mask: Any, pooling: str) -> Any:
    """Pools the tokens of each text: [B, S, .., H] and their mask [B, S] -> [B, .., H].

    `pooling` is "cls" (the first token), "mean" or "max"; or several of them, joined by `_`, whose
    vectors are concatenated: "mean_max" gives [B, .., 2H].
    """
    x = cast(x, "float32")
    ops, pooled = namespace(x), []
    weights = ops.expand_dims(cast(mask, "float32"), tuple(range(2, len(x.shape))))  # [B, S, .., 1]
    for kind in pooling.split("_"):
        if kind == "cls":
            pooled.append(x[:, 0])
        elif kind == "mean":
            count = ops.maximum(ops.sum(weights, axis=1), 1.0)
            pooled.append(ops.sum(x * weights, axis=1) / count)
        else:
            lowest = np.finfo(np.float32).min
            pooled.append(ops.max(ops.where(weights > 0, x, lowest), axis=1))
    return ops.concatenate(pooled, axis=-1)


def normalize(x: Any) -> Any:
    """Scales vectors along the last axis to length 1; zeros remain."""
    ops = namespace(x)
    return x / ops.maximum(ops.sqrt(ops.sum(x * x, axis=-1, keepdims=True)), 1e-12)


def top_k(x: Any, k: int) -> tuple[Any, Any]:
    """Returns the k highest values of each row, descending, and their indexes, int32.

    Ties are in index order.
    """
    if not isinstance(x, np.ndarray):
        return namespace(x).top_k(x, k)
    indexes = np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)
    return np.take_along_axis(x, indexes, axis=-1), indexes
