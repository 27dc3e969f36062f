"""Times the matrix products of BERT-base; their sum is a lower bound of the time of a forward pass.

forward.py times one product of each shape with TensorFlow, XLA and PyTorch, and takes the fastest
of the three for each shape.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

LAYERS, HIDDEN, INNER, HEADS = 12, 768, 3072, 12


def products(batch: int, length: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Returns the number of BERT-base's matrix products for each pair of operand shapes."""
    rows, size = batch * length, HIDDEN // HEADS
    heads = batch * HEADS
    return {
        ((rows, HIDDEN), (HIDDEN, HIDDEN)): 4 * LAYERS,
        ((rows, HIDDEN), (HIDDEN, INNER)): LAYERS,
        ((rows, INNER), (INNER, HIDDEN)): LAYERS,
        ((heads, length, size), (heads, size, length)): LAYERS,
        ((heads, length, length), (heads, length, size)): LAYERS,
    }


def by_tensorflow(batch: int, length: int, precision: str, jit_compile: bool) -> Callable[[], Any]:
    """Returns a function that times each product with TensorFlow or XLA."""
    from bert_tf.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    product = tf.function(tf.matmul, jit_compile=jit_compile, autograph=False)
    factors = [
        [tf.cast(tf.random.normal(shape), precision) for shape in pair]
        for pair in products(batch, length)
    ]
    return lambda: [_seconds(product, *pair) for pair in factors]


def by_torch(batch: int, length: int, precision: str) -> Callable[[], Any]:
    """Returns a function that times each product with PyTorch, which stores weights transposed."""
    import torch

    dtype = getattr(torch, precision)
    factors = []
    for first, second in products(batch, length):
        weights = torch.randn(*second[:-2], second[-1], second[-2]).to(dtype).transpose(-1, -2)
        factors.append((torch.randn(first).to(dtype), weights))

    def measure() -> list[float]:
        with torch.inference_mode():
            return [_seconds(torch.matmul, *pair) for pair in factors]

    return measure


def _seconds(product: Callable[..., Any], *factors: Any) -> float:
    product(*factors)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        product(*factors)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
