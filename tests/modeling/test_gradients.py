"""Custom gradients, compared with automatic differentiation in float64."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import gradients, layers

RNG = np.random.default_rng(3)
X = RNG.normal(scale=2.0, size=(3, 7, 32))
UPSTREAM = RNG.normal(size=X.shape)
GAMMA, BETA = RNG.normal(size=(2, 32))


def _value_and_gradients(function, *arguments, dtype):
    tensors = [tf.constant(argument, dtype) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
        loss = tf.reduce_sum(value * tf.constant(UPSTREAM, dtype))
    return [value, *tape.gradient(loss, tensors)]


def _reference_layer_norm(x, gamma, beta):
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("function", "reference", "arguments"),
    [
        (gradients.gelu, lambda x: tf.nn.gelu(x, approximate=True), [X]),
        (lambda *a: gradients.layer_norm(*a, 1e-12), _reference_layer_norm, [X, GAMMA, BETA]),
    ],
    ids=["gelu", "layer_norm"],
)
def test_custom_gradients_match_autodiff(function, reference, arguments, compiled):
    if compiled:
        function = tf.function(function)
    actual = _value_and_gradients(function, *arguments, dtype="float32")
    expected = _value_and_gradients(reference, *arguments, dtype="float64")
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6)


def test_float16_gelu_of_large_values():
    x = tf.constant([-60000.0, -300.0, -100.0, -20.0, 20.0, 100.0, 300.0, 60000.0], "float16")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gradients.gelu(x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(tape.gradient(y, x), np.asarray(x) > 0)


TRAIN_WITH_TORCH = """
import numpy as np
from bert_tf.modeling import BertClassifier, BertConfig
model = BertClassifier(BertConfig(99, 32, 2, 4, 37, max_position_embeddings=16), 2)
logits = model({"input_ids": np.ones((2, 7), "int32")}, training=True)["logits"]
(logits ** 2).sum().backward()
print(all(v.value.grad is not None for v in model.trainable_variables))
"""


def test_training_on_the_pytorch_backend():
    pytest.importorskip("torch")
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    process = subprocess.run(
        [sys.executable, "-c", TRAIN_WITH_TORCH], capture_output=True, text=True, env=environment
    )
    assert process.stdout.strip() == "True", process.stderr


def test_training_uses_custom_gradients(monkeypatch):
    used = set()
    for name in ("gelu", "layer_norm"):
        function = getattr(gradients, name)

        def spy(*arguments, name=name, function=function):
            used.add(name)
            return function(*arguments)

        monkeypatch.setattr(gradients, name, spy)
    layer = layers.FlatDense(32, activation=layers.gelu)
    norm = layers.layer_norm_layer("float32")
    expected = norm(layer(X))
    assert not used
    actual = norm(layer(X, training=True), training=True)
    assert used == {"gelu", "layer_norm"}
    np.testing.assert_allclose(actual, expected, atol=5e-6)


def test_bfloat16_layer_norm_computes_in_float32():
    norm = layers.layer_norm_layer("mixed_bfloat16")
    x = keras.ops.cast(X, "bfloat16")
    for training in (False, True):
        actual = norm(x, training=training)
        assert actual.dtype == "bfloat16"
        exact = _reference_layer_norm(np.asarray(x, "float64"), 1.0, 0.0)
        np.testing.assert_allclose(np.asarray(actual, "float32"), exact, atol=0.02)
