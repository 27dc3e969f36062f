"""TensorFlow's fused Adam, compared with the optimizer's formula."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.optimization import create_optimizer
from bert_tf.training.fused_adam import update_variable


def _updated(update, steps, **kwargs):
    """Returns a variable with and one without weight decay, and their slots, after some updates."""
    rng = np.random.default_rng(4)
    with keras.name_scope("layer"):
        variables = [
            keras.Variable(rng.normal(size=(5, 7)), name=name, dtype="float32")
            for name in ("kernel", "bias")
        ]
    optimizer = create_optimizer(0.01, 10 * steps, 0, **kwargs)
    optimizer.build(variables)

    def update_all(gradients):
        for variable, gradient in zip(variables, gradients, strict=True):
            update(optimizer, gradient, variable.value, tf.identity(optimizer.learning_rate))
        optimizer.iterations.assign_add(1)

    update_all = tf.function(update_all)
    for _ in range(steps):
        update_all([tf.constant(rng.normal(size=(5, 7)), tf.float32) for _ in variables])
    return [
        [actual.numpy() for actual in (variable, slots["adam_m"], slots["adam_v"])]
        for variable, slots in optimizer.slots()
    ]


@pytest.mark.parametrize(
    "kwargs", [{}, {"adam_bias_correction": True}, {"optimizer": "lamb"}], ids=str
)
def test_fused_update_matches_the_optimizer(kwargs):
    def plain(optimizer, gradient, variable, rate):
        optimizer.update_step(gradient, variable, rate)

    actual, expected = (_updated(update, 30, **kwargs) for update in (update_variable, plain))
    for ours, theirs in zip(actual, expected, strict=True):
        for a, b in zip(ours[:2], theirs[:2], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        # TensorFlow computes 1 - 0.999 in float32.
        np.testing.assert_allclose(ours[2], theirs[2], rtol=2e-5)
