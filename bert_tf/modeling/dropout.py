"""Dropout without state: a mask is a function of a seed that is passed in, and of nothing else.

Keras' own layer draws from a counter that it keeps. Replicas of a model then draw the same mask,
a recomputed layer draws another one than the forward pass did (so its gradients are wrong,
without a word), and a training that goes on cannot know where the counter stood. Here the seed
has an address: training folds in step and replica, the model its layers.
"""

from typing import Any

import keras
from keras import ops

# Odd multipliers, so that no bit is lost, and far apart, so that small addresses do not meet.
# Spectrally good ones, from Steele and Vigna 2021, "Computationally easy, spectrally good
# multipliers", as signed 32-bit numbers.
_MULTIPLIERS = (0x915F77F5 - 2**32, 0x93D765DD - 2**32)


def fold_in(seed: Any, number: Any) -> Any:
    """A new seed from a seed and a part of an address.

    Args:
        seed: int32 [2].
        number: int32, a step, a replica, or the index of a layer.

    Returns:
        int32 [2]. Different addresses give different seeds, the order of their parts counts.
    """
    # Integers wrap around, on every backend.
    return ops.multiply(seed, ops.convert_to_tensor(_MULTIPLIERS, "int32")) + ops.cast(
        number, "int32"
    )


class _Seed(keras.random.SeedGenerator):
    """A seed in the form that `keras.random` takes it; it is the same at every call."""

    def __init__(self, seed: Any) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Any:
        # The TensorFlow backend wants int32; JAX knows unsigned seeds only.
        return (
            self.seed if keras.config.backend() == "tensorflow" else ops.cast(self.seed, "uint32")
        )


class Dropout(keras.layers.Layer):
    """Sets a share of the entries to zero and scales the others up, in training only.

    Args:
        rate: share of the entries, from 0 to below 1.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.built = True

    def call(self, x: Any, seed: Any = None, training: bool | None = None) -> Any:
        """Drops entries of `x`, of any shape.

        Args:
            x: any shape.
            seed: int32 [2]; the same seed gives the same mask.
            training: without, `x` is returned as it is.
        """
        if not training or not self.rate:
            return x
        # Drawn in float32: the few numbers of bfloat16 would miss the rate.
        draws = keras.random.uniform(ops.shape(x), dtype="float32", seed=_Seed(seed))
        return ops.where(draws >= self.rate, x * (1.0 / (1.0 - self.rate)), 0.0)
