"""What the layers promise on any input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.modeling import (
    BertClassifier,
    BertConfig,
    BertModel,
    create_initializer,
    get_activation,
)

SMALL = BertConfig(99, 32, 5, 4, 37, max_position_embeddings=16, type_vocab_size=2)


def test_shapes_of_the_original_test():
    outputs = BertModel(SMALL)({"input_ids": np.ones((13, 7), "int32")}, training=True)
    assert outputs["embedding_output"].shape == (13, 7, 32)
    assert outputs["sequence_output"].shape == (13, 7, 32)
    assert outputs["pooled_output"].shape == (13, 32)
    assert [layer.shape for layer in outputs["all_encoder_layers"]] == [(13, 7, 32)] * 5


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_padding_changes_nothing(length, padding, seed):
    model = _model()
    ids = np.random.default_rng(seed).integers(0, 99, (2, length))
    mask = np.ones_like(ids)
    plain = model({"input_ids": ids, "input_mask": mask})["sequence_output"]
    padded = model(
        {
            "input_ids": np.pad(ids, ((0, 0), (0, padding)), constant_values=3),
            "input_mask": np.pad(mask, ((0, 0), (0, padding))),
        }
    )["sequence_output"]
    np.testing.assert_allclose(np.asarray(padded)[:, :length], np.asarray(plain), atol=1e-5)


def _model(cache=[]):  # noqa: B006 - one model for all examples
    if not cache:
        cache.append(BertModel(SMALL))
    return cache[0]


def test_dropout_only_in_training():
    model = BertClassifier(SMALL, 2)
    inputs = {"input_ids": np.ones((2, 8), "int32")}
    first, second = (np.asarray(model(inputs)["logits"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(np.asarray(model(inputs, training=True)["logits"]) - first).max() > 1e-4


def test_segments_beyond_the_table_add_nothing():
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


def test_initializer_is_cut_off_at_two_deviations():
    values = np.asarray(create_initializer(0.5)((200, 200)))
    assert 0.99 < np.abs(values).max() <= 1.0


def test_model_keeps_its_own_config():
    config = BertConfig(99, 32, 1, 4, 37)
    model = BertModel(config)
    config.hidden_size = 64
    assert model.config.hidden_size == 32


def test_callable_activation_cannot_be_saved(tmp_path):
    model = BertModel(BertConfig(9, 8, 1, 2, 8, hidden_act=abs))
    with pytest.raises(ValueError, match="hidden_act is a function"):
        model.save(tmp_path / "model.keras")
