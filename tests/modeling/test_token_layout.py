"""The unpadded layout gives the same results as the padded layout."""

import functools

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.modeling import BertClassifier, BertConfig, BertTokenClassifier
from bert_tf.modeling.token_layout import UnpaddedLayout
from bert_tf.training.step import with_token_positions

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = BertConfig(99, 32, 3, 4, 37, max_position_embeddings=16, **NO_DROPOUT)
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0]], "int32")


def _make_layout(mask, heads=2):
    positions = with_token_positions({"input_mask": tf.constant(mask)})["token_positions"]
    return UnpaddedLayout(tf.constant(mask), heads, positions)


def test_layout_round_trip():
    layout, x = _make_layout(MASK), np.random.default_rng(1).normal(size=(4, 4, 6))
    x = x.astype("float32")
    unpadded = layout.unpad(tf.constant(x))
    np.testing.assert_array_equal(unpadded, x[MASK == 1])
    np.testing.assert_array_equal(layout.pad(unpadded), x * MASK[:, :, None])
    heads = np.asarray(layout.split_heads(unpadded))
    expected = x.reshape(4, 4, 2, 3).transpose(0, 2, 1, 3)
    is_padding = MASK[:, None, :, None] == 0
    np.testing.assert_array_equal(np.where(is_padding, 0, heads), np.where(is_padding, 0, expected))
    np.testing.assert_array_equal(layout.merge_heads(heads), unpadded)


def test_batch_without_tokens_keeps_one_position():
    layout = _make_layout(np.zeros((2, 3), "int32"))
    assert np.asarray(layout.positions).tolist() == [0]
    assert layout.unpad(tf.zeros((2, 3, 4))).shape == (1, 4)


@functools.cache
def _model(model_class):
    return model_class(SMALL, 3)


def _outputs_and_gradients(model, batch, weights):
    with tf.GradientTape() as tape:
        # Disable the head's dropout, which the configuration does not control.
        model.dropout.rate = 0.0
        logits = model(batch, training=True)["logits"]
        loss = tf.reduce_sum(logits**2 * weights)
    variables = [variable.value for variable in model.trainable_variables]
    return logits, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.booleans(), st.booleans(), st.data())
def test_unpadded_outputs_and_gradients_match_padded(lengths, has_gaps, is_token_classifier, data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    mask = (np.arange(8) < np.array(lengths)[:, None]).astype("int32")
    if has_gaps:
        # Keep the first token, which the classifier reads.
        mask[:, 1:] &= rng.integers(0, 2, mask[:, 1:].shape, dtype="int32")
    shape = mask.shape
    batch = {
        "input_ids": tf.constant(rng.integers(0, 99, shape), tf.int32),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.constant(rng.integers(0, 2, shape), tf.int32),
    }
    # Rows without tokens have arbitrary outputs, and do not contribute to the loss.
    weights = mask if is_token_classifier else mask[:, 0]
    weights = tf.constant(weights[..., None], tf.float32) * [1.0, 2.0, 3.0]
    model = _model(BertTokenClassifier if is_token_classifier else BertClassifier)
    expected_logits, expected_gradients = _outputs_and_gradients(model, batch, weights)
    batch = with_token_positions(batch)
    logits, gradients = _outputs_and_gradients(model, batch, weights)
    mask = tf.cast(weights > 0, tf.float32)
    # Float32 sums over different lengths differ by tens of machine epsilons.
    tolerance = {"rtol": 3e-6, "atol": 2e-6}
    np.testing.assert_allclose(logits * mask, expected_logits * mask, **tolerance)
    for actual, expected in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(actual, expected, **tolerance)
