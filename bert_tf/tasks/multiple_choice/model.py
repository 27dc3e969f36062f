"""The model for multiple choice.

Shapes: B questions in a batch, C endings per question, S max_seq_length.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier, HeadFormat
from bert_tf.modeling.inputs import flatten_texts
from bert_tf.modeling.layers import MASK_BIAS

# [CLS] and [SEP], which alone are the row of an ending that a question lacks.
_NUM_SPECIAL_TOKENS = 2


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(BertClassifier):
    """Scores each ending of a question from the `pooled_output` of its context and this ending.

    A question may have fewer endings than the batch: a row with at most two tokens, which have no
    text, is not an ending, and its probability is 0.

    Example:
        model = BertMultipleChoice(BertConfig(vocab_size=100))
        ids = np.ones((2, 4, 16), "int32")  # [B, C, S]
        model({"input_ids": ids})["logits"]  # [B, C]
    """

    head_format = HeadFormat(
        "multiple_choice",
        BertClassifier.head_format.variables,
        "BertForMultipleChoice",
        outputs="one",
    )
    input_rank = 3

    def __init__(self, config: BertConfig, num_labels: int = 1, **kwargs: Any) -> None:
        super().__init__(config, num_labels, **kwargs)

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, dropout_seed: Any = None
    ) -> dict[str, Any]:
        """Maps the inputs of `BertModel`, here [B, C, S], to `logits`, `probabilities` [B, C]."""
        rows = flatten_texts(inputs)  # [B * C, S]
        outputs = super().call(rows, training=training, dropout_seed=dropout_seed)
        num_endings = ops.shape(inputs["input_ids"])[1]
        logits = ops.reshape(outputs["logits"], (-1, num_endings))  # [B, C]
        if inputs.get("input_mask") is not None:
            num_tokens = ops.sum(inputs["input_mask"], axis=-1)
            logits = ops.where(num_tokens > _NUM_SPECIAL_TOKENS, logits, MASK_BIAS)
        return {"logits": logits, "probabilities": ops.softmax(logits, axis=-1)}

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph, in which `hidden` is [B * C, S, H]."""
        logits, _ = super().onnx_outputs(graph, hidden)["logits"]  # [B * C, 1]
        num_tokens = graph.node("ReduceSum", ["attention_mask/float", graph.ints([1])])
        limit = graph.weight("num_special_tokens", float(_NUM_SPECIAL_TOKENS))
        is_ending = graph.node("Greater", [num_tokens, limit])
        logits = graph.node("Where", [is_ending, logits, "masked_score"])
        num_endings = graph.node("Shape", ["input_ids"], start=1, end=2)
        shape = graph.node("Concat", [graph.ints([-1]), num_endings], axis=0)
        return {"logits": (graph.node("Reshape", [logits, shape]), ["batch", "choices"])}
