"""The encoder in inference, with XLA for what is between its matrix products.

gelu, and the sum and normalization at the end of a block, then go through the memory once instead
of once for each of their operations. TensorFlow computes the products, and attention, whose shapes
differ from batch to batch. T tokens, H hidden size, I intermediate size.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertModel
from bert_tf.modeling.rows import PaddedRows

# XLA compiles for each number of tokens anew, in some hundredths of a second. So there are eight
# from one power of two to the next: from 8 tokens on, an eighth at most is computed for nothing.
_SIZES = np.array([eighths << power for power in range(24) for eighths in range(8, 16)], np.int32)


class CompiledRows(PaddedRows):
    """All tokens of a batch, filled up to the next of some sizes; see `PaddedRows`."""

    def __init__(self, input_mask: Any, num_heads: int) -> None:
        super().__init__(input_mask, num_heads)
        self._tokens = tf.size(input_mask)
        size = tf.gather(_SIZES, tf.searchsorted(_SIZES, [self._tokens])[0])
        self._filling = size - self._tokens

    def _fill(self, x: Any) -> Any:
        return tf.pad(x, [[0, self._filling], [0, 0]])

    def strip(self, x: Any) -> Any:
        """[B, S, H] -> [T, H]."""
        return self._fill(super().strip(x))

    def pad(self, x: Any) -> Any:
        """[T, H] -> [B, S, H]."""
        return super().pad(x[: self._tokens])

    def split_heads(self, x: Any) -> Any:
        """[T, H] -> [B, N, S, D]."""
        return super().split_heads(x[: self._tokens])

    def merge_heads(self, x: Any) -> Any:
        """[B, N, S, D] -> [T, H]."""
        return self._fill(super().merge_heads(x))

    def compute(self, function: Callable[..., Any], *tensors: Any) -> Any:
        """What `function` gives, compiled."""
        return _compiled(function)(*map(tf.convert_to_tensor, tensors))


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function, jit_compile=True, autograph=False)


@contextlib.contextmanager
def compiled_rows(model: keras.Model) -> Iterator[None]:
    """What a model in float32 computes meanwhile, or is traced to, is in `CompiledRows`.

    That pays with many batches on a CPU. Not for a function that is saved: it would need XLA
    wherever it is run. Other threads that use the model meanwhile have it, too.
    """
    parts = (model, getattr(model, "bert", None))
    encoders = [part for part in parts if isinstance(part, BertModel)]
    before = [encoder.padded_rows for encoder in encoders]
    for encoder in encoders:
        encoder.padded_rows = CompiledRows
    try:
        yield
    finally:
        for encoder, rows in zip(encoders, before, strict=True):
            encoder.padded_rows = rows
