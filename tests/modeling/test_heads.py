"""Custom heads on the encoder."""

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling import EncoderWithHead
from bert_tf.modeling.heads import LinearHead


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
