"""Dropout: masks depend only on seed, step, replica and layer."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertConfig
from bert_tf.modeling.dropout import Dropout, fold_in

SMALL = BertConfig(99, 32, 5, 4, 37, max_position_embeddings=16, type_vocab_size=2)
SEED = tf.constant([7, 0])


def apply_dropout(seed, rate=0.1, shape=(64, 128), dtype="float32"):
    dropped = Dropout(rate, dtype=dtype)(tf.ones(shape, dtype), seed, training=True)
    return np.asarray(tf.cast(dropped, "float32"))


def test_mask_depends_on_seed():
    np.testing.assert_array_equal(apply_dropout(SEED), apply_dropout(SEED))
    # Independent masks differ in a fraction 2 x 0.1 x 0.9 of their elements.
    for other in (fold_in(SEED, 0), fold_in(SEED, 1), tf.constant([8, 0])):
        assert np.mean(apply_dropout(SEED) != apply_dropout(other)) == pytest.approx(0.18, abs=0.03)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_rate_and_scale(rate, dtype):
    values = apply_dropout(SEED, rate, (1000, 1000), dtype)
    assert np.mean(values == 0) == pytest.approx(rate, abs=0.002)
    kept = values[values != 0]
    np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=0.005)
    np.testing.assert_array_equal(np.asarray(Dropout(rate)(values, SEED)), values)


def test_folded_seeds_are_unique():
    # Replicas, micro-batches, layers, dropout positions and steps.
    axes = [np.arange(n) for n in (3, 64, 8, 26, 3)]
    seeds = np.array([[7, 0]], "int32")
    for axis in axes:
        folded = [np.asarray(fold_in(seeds, int(number))) for number in axis]
        seeds = np.concatenate(folded)
    assert len(seeds) == np.prod([len(axis) for axis in axes])
    assert len(np.unique(seeds, axis=0)) == len(seeds)


def test_fold_in_order_matters():
    forward, backward = fold_in(fold_in(SEED, 1), 2), fold_in(fold_in(SEED, 2), 1)
    assert not np.array_equal(forward, backward)


def _classifier(recompute_layers=False):
    model = BertClassifier(SMALL, 2, recompute_layers=recompute_layers)
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.05, variable.shape))
    return model


def _loss_and_gradients(model, seed, compiled):
    ids = np.random.default_rng(1).integers(0, 99, (4, 16))

    def compute():
        with tf.GradientTape() as tape:
            outputs = model({"input_ids": ids}, training=True, dropout_seed=seed)
            loss = tf.reduce_sum(outputs["logits"] ** 2)
        variables = [variable.value for variable in model.trainable_variables]
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    return (tf.function(compute) if compiled else compute)()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recompute_layers_keeps_gradients(compiled):
    assert SMALL.hidden_dropout_prob == SMALL.attention_probs_dropout_prob == 0.1
    plain_loss, plain = _loss_and_gradients(_classifier(), SEED, compiled)
    loss, recomputed = _loss_and_gradients(_classifier(recompute_layers=True), SEED, compiled)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    norm = float(tf.linalg.global_norm(plain))
    for actual, expected in zip(recomputed, plain, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6 * norm)
    # Gradients depend on the seed, so a wrong mask would be detected.
    _, other = _loss_and_gradients(_classifier(), fold_in(SEED, 1), compiled)
    differences = [a - b for a, b in zip(other, plain, strict=True)]
    assert float(tf.linalg.global_norm(differences)) > 0.1 * norm


def test_dropout_layers_have_distinct_seeds(monkeypatch):
    seeds = []
    call = Dropout.call

    def spy(self, x, seed=None, training=None):
        seeds.append(tuple(np.asarray(seed)))
        return call(self, x, seed, training=training)

    monkeypatch.setattr(Dropout, "call", spy)
    _classifier()({"input_ids": np.ones((2, 8), "int32")}, training=True, dropout_seed=SEED)
    assert len(seeds) == len(set(seeds)) == 2 + 3 * 5


def test_default_seed_differs_between_calls():
    model, inputs = _classifier(), {"input_ids": np.ones((2, 8), "int32")}
    logits = [np.asarray(model(inputs, training=True)["logits"]) for _ in range(3)]
    for one, other in itertools.combinations(logits, 2):
        assert not np.array_equal(one, other)
