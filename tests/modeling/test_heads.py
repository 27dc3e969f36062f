"""Custom heads on the encoder."""

import keras
import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling import (
    BertClassifier,
    BertSpanLabeler,
    BertTokenClassifier,
    EncoderWithHead,
)
from bert_tf.modeling.heads import LinearHead
from tests.modeling.helpers import config


def test_fit_with_a_metric_of_probabilities():
    model = BertClassifier(config(), 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", {"logits": loss}, metrics={"probabilities": ["accuracy"]})
    ids, labels = np.full((4, 3), 5, np.int32), np.array([0, 1, 1, 1])
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    history = model.fit(inputs, {"logits": labels, "probabilities": labels}, verbose=0).history
    assert {*history} == {"loss", "probabilities_accuracy"}


@pytest.mark.parametrize("model_class", [BertClassifier, BertTokenClassifier, BertSpanLabeler])
def test_attention_of_models_with_a_head(model_class):
    model = model_class(config(), **({} if model_class is BertSpanLabeler else {"num_labels": 2}))
    inputs = {"input_ids": np.full((2, 4), 5, np.int32)}
    outputs = model(inputs, return_attention_probs=True)
    expected = model.bert(inputs, return_attention_probs=True)["all_attention_probs"]
    for actual, layer in zip(outputs.pop("all_attention_probs"), expected, strict=True):
        np.testing.assert_array_equal(actual, layer)
    assert outputs.keys() == model(inputs).keys()


def test_only_the_outermost_model_checks_its_inputs(monkeypatch):
    ranks = []
    monkeypatch.setattr(
        "bert_tf.modeling.configured_model.check_inputs", lambda *args: ranks.append(args[2])
    )
    BertClassifier(config(), 2)({"input_ids": np.ones((1, 4), "int32")})
    assert ranks == [2]


def test_custom_head_only_adds_layers():
    class Regressor(EncoderWithHead):
        def __init__(self, config, **kwargs):
            super().__init__(config, **kwargs)
            self.head = LinearHead(1, name="regressor")
            self.head.build(self.encoded_shape)

        def call(self, inputs, training=None, dropout_seed=None):
            encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
            return {"logits": self.head(encoded["pooled_output"])}

    model = Regressor(BertConfig(30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    assert model.built
    assert model({"input_ids": np.ones((2, 5), "int32")})["logits"].shape == (2, 1)
    assert "regressor/output_weights" in [variable.path for variable in model.variables]
