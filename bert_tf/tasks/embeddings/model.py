"""The bi-encoder.

Shapes: B rows in a batch, P passages of each, S max_seq_length, D size of a vector.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.modeling.heads import EncoderWithHead
from bert_tf.modeling.inputs import flatten_texts

PASSAGES = "passages/"


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBiEncoder(EncoderWithHead):
    """Computes the vector of a text: its token vectors, pooled, and scaled to length 1 on request.

    Takes the arguments of `BertModel`, with `pooling` (see `array_ops.pool`) and `normalize`.

    Example:
        model = BertBiEncoder(BertConfig(vocab_size=100), pooling="mean")
        ids = np.ones((2, 16), "int32")  # [B, S]
        model({"input_ids": ids})["sentence_embedding"]  # [B, D]
    """

    trains_pooler = False

    def __init__(
        self, config: BertConfig, pooling: str = "mean", normalize: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.pooling, self.normalize = pooling, normalize

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`."""
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Maps the inputs of `BertModel` to `sentence_embedding` [B, D].

        If there are also inputs [B, P, S] with the prefix "passages/", returns the vectors of these
        texts, too: `passages` [B, P, D].
        """
        seeds = self._dropout_seeds(2, dropout_seed, training)
        outputs = {"sentence_embedding": self._encode(inputs, training, seeds[0])}
        if passages := flatten_texts(inputs, PASSAGES):
            vectors = self._encode(passages, training, seeds[1])
            count = ops.shape(inputs[f"{PASSAGES}input_ids"])[1]
            outputs["passages"] = ops.reshape(vectors, (-1, count, vectors.shape[-1]))
        return outputs

    def _encode(self, inputs: dict[str, Any], training: bool | None, seed: Any) -> Any:
        names = (*self.input_names, "token_positions")
        inputs = {name: inputs[name] for name in names if inputs.get(name) is not None}
        encoded = self.bert.call_unchecked(inputs, training=training, dropout_seed=seed)
        mask = inputs.get("input_mask")
        mask = ops.ones_like(inputs["input_ids"]) if mask is None else mask
        vectors = array_ops.pool(encoded["sequence_output"], mask, self.pooling)
        return array_ops.normalize(vectors) if self.normalize else vectors
