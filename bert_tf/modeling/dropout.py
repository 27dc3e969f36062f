"""Stateless dropout: a mask depends only on a seed that is passed in.

Keras' own layer keeps a counter. Replicas then draw the same mask, a recomputed layer draws another
mask than its forward pass (which makes its gradients wrong), and a resumed training does not know
the counter. Here the seed has an address: training folds in step and replica, the model its layers.
"""

from typing import Any

import keras
from keras import ops

# Odd, so that no bit is lost, and far apart, so that small addresses do not meet; as signed 32-bit
# numbers. From Steele and Vigna 2021, "Computationally easy, spectrally good multipliers".
_MULTIPLIERS = (0x915F77F5 - 2**32, 0x93D765DD - 2**32)


def fold_in(seed: Any, number: Any) -> Any:
    """Returns a new seed from a seed, int32 [2], and a number, such as a step or a layer's index.

    Different addresses give different seeds; the order of their numbers counts. None stays None.
    """
    if seed is None:
        return None
    # Integers wrap around on every backend.
    product = ops.multiply(seed, ops.convert_to_tensor(_MULTIPLIERS, "int32"))
    return product + ops.cast(number, "int32")


class _Seed(keras.random.SeedGenerator):
    """Passes a seed to `keras.random`; the same at every call."""

    def __init__(self, seed: Any) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Any:
        # The TensorFlow backend requires int32, JAX unsigned seeds.
        is_signed = keras.config.backend() == "tensorflow"
        return self.seed if is_signed else ops.cast(self.seed, "uint32")


class Dropout(keras.layers.Layer):
    """Sets the share `rate` of the entries to zero and scales the others up, in training only."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.built = True

    def call(self, x: Any, seed: Any = None, training: bool | None = None) -> Any:
        """Drops entries of `x`, of any shape; the same seed, int32 [2], gives the same mask."""
        if not training or not self.rate:
            return x
        # Drawn in float32: the few numbers of bfloat16 would miss the rate.
        draws = keras.random.uniform(ops.shape(x), dtype="float32", seed=_Seed(seed))
        return ops.where(draws >= self.rate, x * (1.0 / (1.0 - self.rate)), 0.0)
