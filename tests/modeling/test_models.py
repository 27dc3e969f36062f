"""Properties of layers and models on arbitrary inputs."""

import copy
import functools
import logging
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.modeling import (
    BertClassifier,
    BertConfig,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    create_initializer,
    get_activation,
)
from bert_tf.optimization import create_optimizer

SMALL = BertConfig(99, 32, 5, 4, 37, max_position_embeddings=16, type_vocab_size=2)


@functools.cache
def _model():
    return BertModel(SMALL)


@functools.cache
def _classifier():
    return BertClassifier(SMALL, 2)


@pytest.mark.parametrize("one_hot", [False, True])
def test_word_embeddings_replace_those_of_the_ids(one_hot):
    model = BertModel(SMALL, use_one_hot_embeddings=one_hot)
    ids = np.arange(14).reshape(2, 7)
    words = keras.ops.take(model.embeddings.word_embeddings, ids, axis=0)
    expected = model({"input_ids": ids})["pooled_output"]
    other = model({"input_ids": ids[::-1], "word_embeddings": words})["pooled_output"]
    np.testing.assert_allclose(other, expected, atol=1e-6)


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_padding_does_not_change_outputs(length, padding, seed):
    model = _model()
    ids = np.random.default_rng(seed).integers(0, 99, (2, length))
    mask = np.ones_like(ids)
    plain = model({"input_ids": ids, "input_mask": mask})["sequence_output"]
    width = ((0, 0), (0, padding))
    inputs = {"input_ids": np.pad(ids, width, constant_values=3), "input_mask": np.pad(mask, width)}
    padded = model(inputs)["sequence_output"]
    np.testing.assert_allclose(np.asarray(padded)[:, :length], np.asarray(plain), atol=1e-5)


def test_symbolic_tensors_are_not_converted():
    """NumPy would warn about each of them; see `check_inputs`."""
    model, ids = BertModel(SMALL), np.ones((2, 3), "int32")
    symbolic = keras.Input((3,), dtype="int32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = tf.function(model)({"input_ids": tf.constant(ids)})
        model({"input_ids": symbolic})
    assert outputs["pooled_output"].shape == (2, 32)


def _dropouts(model, **rates):
    """Maps locations to a classifier's dropout layers, after setting the given rates."""
    layers = {"embeddings": [model.bert.embeddings.dropout], "head": [model.dropout]}
    encoder = model.bert.encoder.transformer_layers
    layers["attention"] = [layer.attention.dropout for layer in encoder]
    layers["attention_output"] = [layer.attention_output.dropout for layer in encoder]
    layers["feed_forward"] = [layer.feed_forward_output.dropout for layer in encoder]
    for location, rate in rates.items():
        for layer in layers[location]:
            layer.rate = rate
    return layers


def test_dropout_rates_match_the_original():
    config = copy.deepcopy(SMALL)
    config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.3, 0.2
    layers = _dropouts(BertClassifier(config, 2))
    rates = {location: {layer.rate for layer in dropouts} for location, dropouts in layers.items()}
    # The classifier's 0.1 is hard-coded, not part of the configuration.
    assert rates == {
        "embeddings": {0.3},
        "attention": {0.2},
        "attention_output": {0.3},
        "feed_forward": {0.3},
        "head": {0.1},
    }
    assert sum(map(len, layers.values())) == 2 + 3 * 5


@pytest.mark.parametrize(
    "location", ["embeddings", "attention", "attention_output", "feed_forward", "head"]
)
def test_each_dropout_is_applied(location):
    model = BertClassifier(SMALL, 2)
    _dropouts(model, **dict.fromkeys(_dropouts(model), 0.0))
    inputs = {"input_ids": np.arange(24).reshape(3, 8)}
    plain = np.asarray(model(inputs)["logits"])
    trained = np.asarray(model(inputs, training=True)["logits"])
    np.testing.assert_allclose(trained, plain, atol=1e-7)
    _dropouts(model, **{location: 0.5})
    assert np.abs(np.asarray(model(inputs, training=True)["logits"]) - plain).max() > 1e-6


def test_head_initializer_stddev_matches_the_original():
    config = copy.deepcopy(SMALL)
    config.initializer_range = 0.3
    pretrainer = BertPretrainer(config)
    # Truncation at two stddevs multiplies the stddev by 0.88.
    for head, stddev in (
        (BertClassifier(config, 200).head, 0.02),
        (BertSpanLabeler(BertConfig(9, 512, 1, 2, 8)).head, 0.02),
        (pretrainer.masked_lm.dense.kernel, 0.3),
    ):
        weights = getattr(head, "output_weights", head)
        assert np.asarray(weights).std() == pytest.approx(0.88 * stddev, rel=0.15)
    weights = [np.asarray(BertPretrainer(config).next_sentence.output_weights) for _ in range(3)]
    assert np.std(weights) == pytest.approx(0.88 * 0.3, rel=0.25)


def test_attention_probabilities_are_optional():
    model = BertModel(SMALL)
    inputs = {"input_ids": np.ones((2, 7), "int32")}
    assert "all_attention_probs" not in model(inputs)
    probabilities = model(inputs, return_attention_probs=True)["all_attention_probs"]
    assert [p.shape for p in probabilities] == [(2, 4, 7, 7)] * 5
    np.testing.assert_allclose(np.asarray(probabilities[0]).sum(-1), 1.0, atol=1e-6)


MEANT = {"imput_mask": "input_mask", "token_type_id": "segment_ids", "padding_mask": "input_mask"}


@pytest.mark.parametrize(("name", "suggestion"), MEANT.items())
@pytest.mark.parametrize("make_model", [lambda: _model(), lambda: _classifier()])
def test_misspelled_input_names_are_rejected(make_model, name, suggestion):
    ids = np.ones((1, 3), "int32")
    with pytest.raises(ValueError, match=rf"\A.*Unknown input '{name}': use '{suggestion}'\Z"):
        make_model()({"input_ids": ids, name: ids})


def test_unrelated_inputs_are_ignored():
    ids = np.ones((2, 3), "int32")
    names = ["labels", "label_ids", "label_mask", "unique_ids", "is_real_example", "guid"]
    expected = _model()({"input_ids": ids})["pooled_output"]
    actual = _model()({"input_ids": ids, **dict.fromkeys(names, ids)})["pooled_output"]
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": np.array([[1, -1, 2]])}, "input_ids must be between 0 and 98. Received: -1"),
        ({"input_ids": tf.constant([[1, 99, 2]])}, "input_ids must .* 98. Received: 99"),
        ({"input_mask": np.full((1, 3), 2)}, "input_mask must be between 0 and 1. Received: 2"),
        ({"input_ids": np.ones((1, 3), "float32")}, "input_ids must .* Received: float32"),
        ({"input_ids": [[1, 2, 3]]}, "input_ids must be an integer array.* Received: list"),
        ({"input_ids": np.array([["a"]])}, "input_ids must be an integer array.* Received: <U1"),
        ({"segment_ids": np.full((1, 3), 2)}, "segment_ids must be between 0 and 1. Received: 2"),
        ({"input_ids": np.ones(3, int)}, r"input_ids .* \[B, S\]. Received: \(3,\)"),
        ({"input_ids": np.zeros((2, 0), int)}, r"input_ids .* \[B, S\]. Received: \(2, 0\)"),
        ({"input_mask": np.ones((1, 2))}, r"input_mask .* \(1, 3\). Received: \(1, 2\)"),
        ({"segment_ids": np.ones((1, 3, 1))}, r"segment_ids must .* Received: \(1, 3, 1\)"),
    ],
)
def test_invalid_inputs_are_rejected(changes, message):
    with pytest.raises(ValueError, match=rf"\A{message}\Z"):
        _model()({"input_ids": np.ones((1, 3), "int32"), **changes})


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (np.array([[0, 1, 0, 0]]), "must be the indexes of tokens, [B, P], not a mask"),
        (np.array([[False, True]]), "must be the indexes of tokens, [B, P], not a mask"),
        (np.array([[1, 4]]), "must be between 0 and 3. Received: 4"),
        (tf.constant([[-1, 0]]), "must be between 0 and 3. Received: -1"),
    ],
)
def test_invalid_masked_lm_positions_are_rejected(positions, message):
    inputs = {"input_ids": np.ones((1, 4), int), "masked_lm_positions": positions}
    with pytest.raises(ValueError, match=re.escape(f"masked_lm_positions {message}")):
        BertPretrainer(SMALL)(inputs)


def test_mask_without_first_tokens_warns(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("bert_tf"), "propagate", True)
    ids, mask = np.ones((2, 3), int), np.array([[1, 0, 0], [0, 0, 0]])
    _model()({"input_ids": ids, "input_mask": mask})
    _model()({"input_ids": ids, "input_mask": tf.constant(mask, tf.float32)})
    assert not caplog.records
    _model()({"input_ids": ids, "input_mask": np.array([[0, 0, 1], [0, 1, 1]])})
    assert "input_mask is 0 at the first token of all rows" in caplog.text


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_arrays_are_checked_before_the_first_step(method):
    model = BertClassifier(SMALL, num_labels=2)
    model.compile(loss="sparse_categorical_crossentropy")
    inputs = {"input_ids": np.ones((2, 3), int), "segment_ids": np.full((2, 3), 2)}
    with pytest.raises(ValueError, match="segment_ids must be between 0 and 1"):
        getattr(model, method)(inputs)


@pytest.mark.parametrize(
    "labels", [np.array(["ham", "spam"]), ["ham", "spam"], [0, 1], np.array([1, 2])]
)
def test_labels_are_arrays_of_ids(labels):
    model = BertClassifier(SMALL, num_labels=2)
    model.compile("sgd", {"logits": "sparse_categorical_crossentropy"})
    with pytest.raises(UserError, match="Labels must be an array of ids from 0 to 1"):
        model.fit({"input_ids": np.ones((2, 3), int)}, labels, verbose=0)


@pytest.mark.parametrize("num_labels", [0, ["yes", "no"]])
def test_invalid_num_labels_is_rejected(num_labels):
    with pytest.raises(ValueError, match="num_labels must be a positive integer"):
        BertClassifier(SMALL, num_labels)


@pytest.mark.parametrize("config", [SMALL.to_dict(), "bert_config.json", None])
def test_config_of_wrong_type_is_rejected(config):
    with pytest.raises(ValueError, match="TensorFlow 1 code: use BertModel"):
        BertModel(config)


def test_tracing_only_checks_shapes():
    encode = tf.function(lambda **inputs: _model()(inputs)["pooled_output"])
    ids = tf.ones((1, 3), tf.int32)
    with pytest.raises(ValueError, match="input_mask must have the shape of input_ids"):
        encode(input_ids=ids, input_mask=tf.ones((1, 2), tf.int32))
    graph = encode.get_concrete_function(input_ids=tf.TensorSpec((None, None), tf.int32)).graph
    assert not {"Max", "Min", "Assert"} & {node.type for node in graph.get_operations()}


def test_mixed_precision_gives_float32_logits():
    model = BertClassifier(SMALL, 2, dtype="mixed_bfloat16")
    inputs = {"input_ids": np.ones((2, 7), "int32")}
    assert model.bert(inputs)["sequence_output"].dtype == "bfloat16"
    outputs = model(inputs)
    assert {str(value.dtype.name) for value in outputs.values()} == {"float32"}
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}


def test_compiled_model_can_be_reloaded_and_trained(tmp_path):
    config = copy.copy(SMALL)
    config.num_hidden_layers = 1
    model = BertClassifier(config, 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(create_optimizer(1e-3, 10, 2), loss={"logits": loss})
    ids = np.arange(64).reshape(8, 8)
    model.fit({"input_ids": ids}, {"logits": np.arange(8) % 2}, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = np.asarray(model({"input_ids": ids})["logits"])
    np.testing.assert_array_equal(np.asarray(loaded({"input_ids": ids})["logits"]), expected)
    loaded.fit({"input_ids": ids}, {"logits": np.arange(8) % 2}, verbose=0)
    assert int(loaded.optimizer.iterations.numpy()) == 2


def test_out_of_range_segment_ids_add_zero():
    model = BertModel(SMALL)
    ids = np.ones((1, 4), "int32")
    embedded = model.embeddings(ids, np.full((1, 4), 7))
    table = model.embeddings.token_type_embeddings
    table.assign(table + 1.0)
    np.testing.assert_array_equal(embedded, model.embeddings(ids, np.full((1, 4), 7)))


@pytest.mark.parametrize("name", ["gelu", "GELU", "relu", "tanh"])
def test_activation_by_name(name):
    values = np.asarray(get_activation(name)(np.float32([-1.0, 0.0, 2.0])))
    expected = {
        "gelu": [-0.158808, 0.0, 1.954597],
        "relu": [0.0, 0.0, 2.0],
        "tanh": [-0.761594, 0.0, 0.964028],
    }
    np.testing.assert_allclose(values, expected[name.lower()], atol=1e-5)


def test_no_activation():
    assert all(get_activation(name) is None for name in ("linear", "Linear", "", None))
    assert get_activation(abs) is abs
    with pytest.raises(ValueError, match="swish"):
        get_activation("swish")


def test_model_copies_its_config():
    config = BertConfig(99, 32, 1, 4, 37)
    model = BertModel(config)
    config.hidden_size = 64
    assert model.config.hidden_size == 32


def test_callable_activation_cannot_be_saved(tmp_path):
    model = BertModel(BertConfig(9, 8, 1, 2, 8, hidden_act=abs))
    with pytest.raises(ValueError, match="whose hidden_act is a function"):
        model.save(tmp_path / "model.keras")


def test_zero_init_encoder_keeps_head_initialization():
    values = []
    for zero_init in (False, True):
        keras.utils.set_random_seed(5)
        model = BertClassifier(SMALL, 2, zero_init_encoder=zero_init)
        values.append({v.path: v.numpy() for v in model.variables if v.dtype == "float32"})
        assert model.config.initializer_range == model.bert.config.initializer_range == 0.02
    random_init, zero_init = values
    kernels = [name for name in random_init if "kernel" in name or name.endswith("_embeddings")]
    assert len(kernels) == 3 + 6 * 5 + 1
    for name, value in zero_init.items():
        expected = np.zeros_like(value) if name in kernels else random_init[name]
        np.testing.assert_array_equal(value, expected, err_msg=name)
    assert np.abs(zero_init["classifier/output_weights"]).max() > 0


def test_original_signature_is_rejected():
    with pytest.raises(UserError, match=r"use BertModel\("):
        BertModel(SMALL, True, np.zeros((1, 2), np.int32))


def test_dropout_is_only_applied_in_training():
    model = BertClassifier(SMALL, 2)
    inputs = {"input_ids": np.ones((2, 8), "int32")}
    first, second = (np.asarray(model(inputs)["logits"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(np.asarray(model(inputs, training=True)["logits"]) - first).max() > 1e-4


def test_initializer_is_truncated_at_two_stddevs():
    values = np.asarray(create_initializer(0.5)((200, 200)))
    assert 0.99 < np.abs(values).max() <= 1.0


def test_output_shapes_match_the_original():
    outputs = BertModel(SMALL)({"input_ids": np.ones((13, 7), "int32")}, training=True)
    assert outputs["embedding_output"].shape == (13, 7, 32)
    assert outputs["sequence_output"].shape == (13, 7, 32)
    assert outputs["pooled_output"].shape == (13, 32)
    assert [layer.shape for layer in outputs["all_encoder_layers"]] == [(13, 7, 32)] * 5
