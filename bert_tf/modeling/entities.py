"""Relation classification: a head that reads two entity markers (Baldini Soares et al. 2019).

Shapes: B texts in a batch, S sequence length, H hidden_size, L labels.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.configured_model import HeadFormat
from bert_tf.modeling.heads import BertClassifier, LinearHead

_INT32 = 6  # in ONNX
_NAMES = ("output_bias", "output_weights", "marker_ids")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEntityClassifier(BertClassifier):
    """Classifies texts from the states of two entity markers, concatenated.

    Of a marker that occurs several times, the first counts; for one that is missing, `[CLS]`.
    Takes the arguments of `BertClassifier`, and the ids of the two markers, `marker_ids`.
    """

    head_format = HeadFormat(
        "entities", {f"entities/{name}": f"entities.{name}" for name in _NAMES}, has_pooler=False
    )
    trains_pooler = False

    def __init__(self, *args: Any, marker_ids: Sequence[int] = (0, 0), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.marker_ids.assign(ops.convert_to_tensor([*marker_ids], "float32"))

    def make_head(self) -> LinearHead:
        """Returns the head, built for the states of both markers."""
        head = LinearHead(self.num_labels, name="entities", dtype=self.dtype_policy)
        # A variable, to stay with the weights in all file formats; never in the compute dtype,
        # which rounds ids.
        self.marker_ids = head.add_weight(
            shape=(2,), initializer="zeros", trainable=False, autocast=False, name="marker_ids"
        )
        head.build((None, 2 * self.config.hidden_size))
        return head

    def pool(self, encoded: Any, inputs: Any) -> Any:
        """Returns the states of the markers, [B, 2H]."""
        ids = ops.expand_dims(inputs["input_ids"], 1)  # [B, 1, S]
        markers = ops.reshape(ops.cast(self.marker_ids, "int32"), (1, 2, 1))
        positions = ops.argmax(ops.cast(ops.equal(ids, markers), "int32"), axis=-1)  # [B, 2]
        states = ops.take_along_axis(
            encoded["sequence_output"], ops.expand_dims(positions, -1), axis=1
        )
        return ops.reshape(states, (-1, 2 * self.config.hidden_size))

    def onnx_outputs(self, graph: Any, hidden: str) -> dict[str, Any]:
        """Adds the head to an ONNX graph."""
        markers = [int(marker) for marker in ops.convert_to_numpy(self.marker_ids)]
        ids = graph.node("Unsqueeze", ["input_ids", graph.ints([1])])  # [B, 1, S]
        columns = graph.node("Unsqueeze", [graph.ints(markers), graph.ints([0, 2])])
        found = graph.node("Cast", [graph.node("Equal", [ids, columns])], to=_INT32)
        positions = graph.node("ArgMax", [found], axis=-1, keepdims=1)  # [B, 2, 1]
        states = graph.node("GatherND", [hidden, positions], batch_dims=1)  # [B, 2, H]
        logits = graph.linear(graph.node("Flatten", [states], axis=1), self.head, "entities")
        return {"logits": (logits, ["batch", self.num_labels])}
