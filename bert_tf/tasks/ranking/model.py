"""The cross-encoder.

Shapes: B rows in a batch, N negatives of each, S max_seq_length.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.inputs import flatten_texts

NEGATIVES = "negatives/"


@keras.saving.register_keras_serializable(package="bert_tf")
class BertCrossEncoder(BertClassifier):
    """Computes how relevant a passage is to a query, from the `pooled_output` of both in one row.

    It is a classifier with one label, and stored as such. Takes the arguments of `BertModel`.

    Example:
        model = BertCrossEncoder(BertConfig(vocab_size=100))
        ids = np.ones((2, 16), "int32")  # [B, S]
        model({"input_ids": ids})["logits"]  # [B, 1]
    """

    onnx_outputs = BertClassifier.onnx_outputs  # for pairs [B, S] only

    def __init__(self, config: BertConfig, num_labels: int = 1, **kwargs: Any) -> None:
        super().__init__(config, num_labels, **kwargs)

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Maps the inputs of `BertModel` to `logits` [B, 1].

        If there are also inputs [B, N, S] with the prefix "negatives/", adds their `logits`:
        [B, 1 + N].
        """
        seeds = self._dropout_seeds(2, dropout_seed, training)
        negatives = flatten_texts(inputs, NEGATIVES)
        first = {name: inputs[name] for name in inputs if not name.startswith(NEGATIVES)}
        logits = super().call(first, training=training, dropout_seed=seeds[0])["logits"]
        if negatives:
            more = super().call(negatives, training=training, dropout_seed=seeds[1])["logits"]
            count = ops.shape(inputs[f"{NEGATIVES}input_ids"])[1]
            logits = ops.concatenate([logits, ops.reshape(more, (-1, count))], axis=1)
        return {"logits": logits}
