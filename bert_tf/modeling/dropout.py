"""Stateless dropout: the mask depends only on the seed passed in.

Keras' Dropout counts its calls. Replicas would thus draw the same mask, a recomputed layer would
draw a different mask than its forward pass (so that gradients are wrong), and a resumed run would
lose the counter. Here, seeds are derived (`fold_in`) from step and replica by the training loop,
and then from the index of the layer by the model.
"""

from typing import Any

import keras
from keras import ops

# Signed 32-bit integers: odd, so that no bits are lost, and large, so that small numbers do not
# collide. From Steele and Vigna 2021, "Computationally easy, spectrally good multipliers".
_MULTIPLIERS = (0x915F77F5 - 2**32, 0x93D765DD - 2**32)


def fold_in(seed: Any, number: Any) -> Any:
    """Derives a new seed from a seed, int32 [2], and a number, such as a step or a layer index.

    Folding in different numbers, or in a different order, gives different seeds. None stays None.
    """
    if seed is None:
        return None
    # Integer overflow wraps around on every backend.
    product = ops.multiply(seed, ops.convert_to_tensor(_MULTIPLIERS, "int32"))
    return product + ops.cast(number, "int32")


class _Seed(keras.random.SeedGenerator):
    """A seed generator that always returns the same seed, to pass it to `keras.random`."""

    def __init__(self, seed: Any) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Any:
        # The TensorFlow backend requires int32 seeds, the JAX backend uint32 seeds.
        is_signed = keras.config.backend() == "tensorflow"
        return self.seed if is_signed else ops.cast(self.seed, "uint32")


class Dropout(keras.layers.Layer):
    """In training, sets a fraction `rate` of the entries to zero and scales up the others."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.built = True

    def call(self, x: Any, seed: Any = None, training: bool | None = None) -> Any:
        """Drops entries of `x`; the mask depends only on the shape and `seed`, int32 [2]."""
        if not training or not self.rate:
            return x
        # Draw in float32: bfloat16 numbers are too coarse to drop entries at exactly this rate.
        draws = keras.random.uniform(ops.shape(x), dtype="float32", seed=_Seed(seed))
        return ops.where(draws >= self.rate, x * (1.0 / (1.0 - self.rate)), 0.0)
