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

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model; for P passages of each query, [B, P, S], `logits` are [B, P]."""
        ids = inputs.get("input_ids") if isinstance(inputs, dict) else None
        if len(getattr(ids, "shape", ())) != 3:
            return super().__call__(inputs, *args, **kwargs)
        logits = super().__call__(flatten_texts(inputs), *args, **kwargs)["logits"]
        return {"logits": ops.reshape(logits, (-1, ops.shape(ids)[1]))}
