"""How fast this machine is at the matrix products of BERT: the limit of a forward pass.

Measured by forward.py: each of TensorFlow, XLA and PyTorch computes the products of one layer, one
after the other, and the fastest of the three counts for each shape.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

LAYERS, HIDDEN, INNER, HEADS = 12, 768, 3072, 12


def products(batch: int, length: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Shapes of the factors of BERT-base's matrix products -> how many of them there are."""
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
    """Gives seconds for each product, by TensorFlow or by XLA."""
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
    """Gives seconds for each product, by PyTorch, whose weights are stored transposed."""
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
