"""Times the matrix products of BERT, whose sum is a lower bound for a forward pass.

forward.py has TensorFlow, XLA and PyTorch compute the products of one layer, one by one, and takes
the fastest of the three for each shape.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

LAYERS, HIDDEN, INNER, HEADS = 12, 768, 3072, 12


def products(batch: int, length: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Maps the shapes of the factors of BERT-base's matrix products to their numbers."""
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
    """Returns a function that times each product by TensorFlow or XLA."""
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
    """Returns a function that times each product by PyTorch, which stores weights transposed."""
    import torch

    kind = getattr(torch, precision)
    factors = []
    for first, second in products(batch, length):
        weights = torch.randn(*second[:-2], second[-1], second[-2]).to(kind).transpose(-1, -2)
        factors.append((torch.randn(first).to(kind), weights))

    def work() -> list[float]:
        with torch.inference_mode():
            return [_seconds(torch.matmul, *pair) for pair in factors]

    return work


def _seconds(product: Callable[..., Any], *factors: Any) -> float:
    product(*factors)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        product(*factors)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
