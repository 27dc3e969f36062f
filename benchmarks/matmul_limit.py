"""Times BERT-base's matrix products, whose total approximates the minimum time of a forward pass.

forward.py times one product of each shape with TensorFlow, XLA and PyTorch, and adds up the fastest
times, multiplied by the number of products of each shape.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

LAYERS, HIDDEN, INTERMEDIATE, HEADS = 12, 768, 3072, 12


def count_matmuls(batch: int, length: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], int]:
    """Maps the shapes of two operands to the number of such matrix products in BERT-base."""
    tokens, head_size = batch * length, HIDDEN // HEADS
    heads = batch * HEADS
    return {
        ((tokens, HIDDEN), (HIDDEN, HIDDEN)): 4 * LAYERS,
        ((tokens, HIDDEN), (HIDDEN, INTERMEDIATE)): LAYERS,
        ((tokens, INTERMEDIATE), (INTERMEDIATE, HIDDEN)): LAYERS,
        ((heads, length, head_size), (heads, head_size, length)): LAYERS,
        ((heads, length, length), (heads, length, head_size)): LAYERS,
    }


def make_tensorflow_timer(
    batch: int, length: int, precision: str, jit_compile: bool
) -> Callable[[], Any]:
    """Returns a function that times each product with TensorFlow or XLA."""
    from bert_tf.base.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    matmul = tf.function(tf.matmul, jit_compile=jit_compile, autograph=False)
    operands = [
        [tf.cast(tf.random.normal(shape), precision) for shape in pair]
        for pair in count_matmuls(batch, length)
    ]
    return lambda: [_median_seconds(matmul, *pair) for pair in operands]


def make_torch_timer(batch: int, length: int, precision: str) -> Callable[[], Any]:
    """Returns a function that times each product with PyTorch, which stores weights transposed."""
    import torch

    dtype = getattr(torch, precision)
    operands = []
    for first, second in count_matmuls(batch, length):
        weights = torch.randn(*second[:-2], second[-1], second[-2]).to(dtype).transpose(-1, -2)
        operands.append((torch.randn(first).to(dtype), weights))

    def measure() -> list[float]:
        with torch.inference_mode():
            return [_median_seconds(torch.matmul, *pair) for pair in operands]

    return measure


def _median_seconds(matmul: Callable[..., Any], *operands: Any) -> float:
    matmul(*operands)  # compiles, or warms up
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        matmul(*operands)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
