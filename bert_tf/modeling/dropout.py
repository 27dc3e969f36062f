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
    The type of the seed, int32 or uint32, is also that of the result.
    """
    if seed is None:
        return None
    # Integer overflow wraps around on every backend.
    multipliers = ops.cast(ops.convert_to_tensor(_MULTIPLIERS, "int32"), seed.dtype)
    return ops.multiply(seed, multipliers) + ops.cast(number, seed.dtype)


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
        """Drops entries of `x`; the mask depends only on the shape and `seed`, see `BertModel`."""
        if not training or not self.rate:
            return x
        draws = _draw_uniform(ops.shape(x), seed)
        return ops.where(draws >= self.rate, x * (1.0 / (1.0 - self.rate)), 0.0)


def _draw_uniform(shape: Any, seed: Any) -> Any:
    """Draws numbers in [0, 1), in float32: bfloat16 is too coarse to drop exactly at the rate."""
    is_key = keras.backend.standardize_dtype(seed.dtype) == "uint32"
    if not is_key or keras.config.backend() != "tensorflow":
        return keras.random.uniform(shape, dtype="float32", seed=_Seed(seed))
    # `keras.random` has TensorFlow scramble the seed, in a dozen operations for each mask.
    from bert_tf.base.backend import tf

    key = tf.reshape(tf.bitcast(seed, tf.uint64), [1])
    counter = tf.zeros([2], tf.uint64)
    philox = tf.random.Algorithm.PHILOX.value
    return tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=philox)
