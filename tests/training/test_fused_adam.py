"""TensorFlow's fused Adam, compared with the optimizer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.optimization import create_optimizer
from bert_tf.training.step import update_variable


def _run_updates(update, steps, **kwargs):
    """Updates a variable with weight decay and one without; returns their values and slots."""
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
        [value.numpy() for value in (variable, slots["adam_m"], slots["adam_v"])]
        for variable, slots in optimizer.slots()
    ]


@pytest.mark.parametrize(
    "kwargs", [{}, {"adam_bias_correction": True}, {"optimizer": "lamb"}], ids=str
)
def test_fused_update_matches_the_optimizer(kwargs):
    def optimizer_update(optimizer, gradient, variable, rate):
        optimizer.update_step(gradient, variable, rate)

    actual, expected = (
        _run_updates(update, 30, **kwargs) for update in (update_variable, optimizer_update)
    )
    for (*values, adam_v), (*expected_values, expected_v) in zip(actual, expected, strict=True):
        for value, expected_value in zip(values, expected_values, strict=True):
            np.testing.assert_allclose(value, expected_value, atol=1e-6)
        # TensorFlow computes 1 - 0.999 in float32.
        np.testing.assert_allclose(adam_v, expected_v, rtol=2e-5)
