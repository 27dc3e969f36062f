"""The cross-encoder.

Shapes: B rows in a batch, P passages of a query, S max_seq_length.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.inputs import flatten_texts


@keras.saving.register_keras_serializable(package="bert_tf")
class BertCrossEncoder(BertClassifier):
    """Computes how relevant a passage is to a query, from the `pooled_output` of both in one row.

    It is a classifier with one label, and stored as such. Takes the arguments of `BertModel`.

    Example:
        model = BertCrossEncoder(BertConfig(vocab_size=100))
        ids = np.ones((2, 16), "int32")  # [B, S]
        model({"input_ids": ids})["logits"]  # [B, 1]
    """

    def __init__(self, config: BertConfig, num_labels: int = 1, **kwargs: Any) -> None:
        super().__init__(config, num_labels, **kwargs)

    def call(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Computes `logits` [B, 1]; in training, of P passages of each query, [B, P, S], [B, P]."""
        outputs = super().call(flatten_texts(inputs), **kwargs)
        ids = inputs["input_ids"]
        if len(ids.shape) == 3:
            return {"logits": ops.reshape(outputs["logits"], (-1, ops.shape(ids)[1]))}
        return outputs


# Only the shape of the inputs differs: the head is stored and exported as that of the classifier.
BertCrossEncoder.head_format = BertClassifier.head_format
BertCrossEncoder.onnx_outputs = BertClassifier.onnx_outputs
