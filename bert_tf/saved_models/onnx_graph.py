"""Builds ONNX graphs of the models directly from their weights, without tracing TensorFlow.

The letters in shapes are those of `modeling/layers.py`, L labels, and C choices (multiple choice).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.base.errors import UserError
from bert_tf.base.extras import import_extra
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.inference.exported_model import HIDDEN_STATES, INPUTS
from bert_tf.modeling import BertModel
from bert_tf.modeling.layers import MASK_BIAS

# The first version of ONNX's operators that has Gelu; LayerNormalization is older.
_OPSET = 20
# Version of the file format, which ONNX Runtime 1.17 and newer can read.
_IR_VERSION = 9
# Data types of `onnx.TensorProto`.
_FLOAT, _INT64, _BOOL = 1, 7, 9

# `hidden_act` -> ONNX operator and its attributes.
_ACTIVATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", {}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
}

# Output name -> (name of the value in the graph, dimensions).
_Outputs = dict[str, tuple[str, list[int | str]]]


def build_onnx_model(
    model: keras.Model, pooling: str | None = None, hidden_states: bool = False
) -> Any:
    """Builds the `onnx.ModelProto` of a model in float32.

    Inputs are `input_ids`, `attention_mask` and `token_type_ids`, int64 [B, S], or [B, C, S] for
    multiple choice. Outputs are named as in Transformers, except that `hidden_states.0` is the
    output of the first layer; Transformers' `hidden_states` begin with the embeddings.

    | model | outputs |
    |---|---|
    | `BertModel` | `last_hidden_state` [B, S, H]; `pooler_output` [B, H]; with `pooling` also \
`sentence_embedding` [B, H]; with `hidden_states` also `hidden_states.0` [B, S, H] and so on |
    | `BertClassifier` | `logits` [B, L]; [B, C] for multiple choice |
    | `BertTokenClassifier` | `logits` [B, S, L] |
    | `BertSpanLabeler` | `start_logits` and `end_logits` [B, S] |

    Models with further `input_names` have inputs of these names, int64 of the same rank.

    Args:
        model: an instance of one of these classes, or of another one with `onnx_outputs`, see
            `EncoderWithHead`.
        pooling: how an encoder's `sentence_embedding` summarizes the last layer: "mean", "max" or
            "cls"; None for no such output.
        hidden_states: whether an encoder also returns the output of each layer.

    Raises:
        UserError: the package onnx is missing, or the model's class or activation is not supported.
    """
    if getattr(model, "onnx_outputs", None) is None:
        problem = f"{type(model).__name__} cannot be exported to ONNX"
        raise UserError(f"{problem}: it has no method onnx_outputs(graph, hidden)")
    graph = Graph()
    rank = model.input_rank
    inputs = list(INPUTS)
    if rank == 3:
        # [B, C, S] -> [B * C, S].
        row_length = graph.node("Shape", ["input_ids"], start=2, end=3)
        flat_shape = graph.node("Concat", [graph.ints([-1]), row_length], axis=0)
        inputs = [graph.node("Reshape", [name, flat_shape]) for name in INPUTS]
    encoder = model if isinstance(model, BertModel) else model.bert
    layer_outputs = _encoder(graph, encoder, *inputs)
    outputs: _Outputs = model.onnx_outputs(graph, layer_outputs[-1])
    if pooling:
        pooled = _pool(graph, layer_outputs[-1], pooling)
        outputs["sentence_embedding"] = (pooled, ["batch", encoder.config.hidden_size])
    if hidden_states:
        shape_of_each = ["batch", "sequence", encoder.config.hidden_size]
        outputs |= {
            f"{HIDDEN_STATES}{index}": (value, shape_of_each)
            for index, value in enumerate(layer_outputs)
        }
    dimensions = ["batch", "choices", "sequence"] if rank == 3 else ["batch", "sequence"]
    more_inputs = sorted(set(model.input_names) - set(INPUTS.values()))
    own_dimensions = ["batch", *[None] * (rank - 1)]
    all_inputs = dict.fromkeys(INPUTS, dimensions) | dict.fromkeys(more_inputs, own_dimensions)
    return graph.model(all_inputs, outputs)


class Graph:
    """Collects the nodes and weights of a graph; values are identified by name.

    The names of the encoder's inputs are the keys of `inference.exported_model.INPUTS`.
    """

    def __init__(self) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Adds a node with one output, and returns the name of the output."""
        return self.multi_output_node(op, inputs, 1, name, **attributes)[0]

    def multi_output_node(
        self, op: str, inputs: Sequence[str], count: int, name: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node with `count` outputs, and returns their names."""
        name = name or f"{op}_{len(self._nodes)}"
        outputs = [name if count == 1 else f"{name}:{index}" for index in range(count)]
        node = self._onnx.helper.make_node(op, list(inputs), outputs, name=name, **attributes)
        self._nodes.append(node)
        return outputs

    def weight(self, name: str, value: Any) -> str:
        """Adds a constant float32 array under this name, and returns the name."""
        array = np.ascontiguousarray(value, np.float32)
        self._weights.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def ints(self, values: Sequence[int]) -> str:
        """Adds a constant int64 vector, and returns its name."""
        name = f"ints_{len(self._weights)}"
        self._weights.append(self._onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def model(self, inputs: Mapping[str, Sequence[str | None]], outputs: _Outputs) -> Any:
        """Returns the model, after checking that it is valid ONNX.

        `inputs` maps names to dimensions. All inputs are int64; the outputs are float32.
        """
        helper = self._onnx.helper
        make_info = helper.make_tensor_value_info
        input_infos = [make_info(name, _INT64, list(dims)) for name, dims in inputs.items()]
        output_infos = []
        for name, (value, dimensions) in outputs.items():
            self.node("Identity", [value], name)
            output_infos.append(make_info(name, _FLOAT, dimensions))
        graph = helper.make_graph(self._nodes, "bert", input_infos, output_infos, self._weights)
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(
            graph, opset_imports=opset, ir_version=_IR_VERSION, producer_name="bert_tf"
        )
        # The checker does not accept models in memory of 2 GB or more.
        if model.ByteSize() < 2**31:
            self._onnx.checker.check_model(model)
        return model

    def dense(self, x: str, kernel: Any, bias: Any, name: str) -> str:
        """Adds a dense layer: [.., in] -> [.., out]."""
        product = self.node("MatMul", [x, self.weight(f"{name}/kernel", kernel)], f"{name}/MatMul")
        return self.node("Add", [product, self.weight(f"{name}/bias", bias)], name)

    def linear(self, x: str, head: Any, name: str) -> str:
        """Adds a `LinearHead`: [.., H] -> [.., L]."""
        return self.dense(x, np.asarray(head.output_weights).T, head.output_bias, name)

    def first_token(self, x: str) -> str:
        """Selects the first token: [B, S, H] -> [B, H]."""
        start, end, axis = self.ints([0]), self.ints([1]), self.ints([1])
        return self.node("Squeeze", [self.node("Slice", [x, start, end, axis]), axis])

    def pooler(self, x: str, bert: BertModel) -> str:
        """Adds the encoder's pooler: [B, S, H] -> [B, H]."""
        dense, first_token = bert.pooler.dense, self.first_token(x)
        hidden = self.dense(first_token, dense.kernel, dense.bias, "pooler/dense")
        return self.node("Tanh", [hidden])

    def split(self, x: str, count: int, name: str) -> list[str]:
        """Splits the last axis, of size `count`: [.., count] -> `count` values [..]."""
        parts = self.multi_output_node(
            "Split", [x], count, f"{name}/split", axis=-1, num_outputs=count
        )
        return [self.node("Squeeze", [part, self.ints([-1])]) for part in parts]

    def layer_norm(self, x: str, layer: keras.layers.Layer, name: str) -> str:
        """Adds a layer normalization: [.., H] -> [.., H]."""
        gamma = self.weight(f"{name}/gamma", layer.gamma)
        beta = self.weight(f"{name}/beta", layer.beta)
        inputs = [x, gamma, beta]
        return self.node("LayerNormalization", inputs, name, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def activation(self, x: str, hidden_act: Any, name: str) -> str:
        """Adds the activation function of a configuration's `hidden_act`."""
        key: Any = hidden_act if callable(hidden_act) else (hidden_act or "linear").lower()
        if key not in _ACTIVATIONS:
            raise UserError(f"hidden_act={hidden_act!r} cannot be exported to ONNX")
        op, attributes = _ACTIVATIONS[key]
        return self.node(op, [x], name, **attributes)


def _encoder(graph: Graph, bert: BertModel, ids: str, mask: str, segment_ids: str) -> list[str]:
    """Adds the encoder: ids, mask and segment ids [B, S] -> the output [B, S, H] of each layer."""
    hidden = _embeddings(graph, bert, ids, segment_ids)
    as_float = graph.node("Cast", [mask], "attention_mask/float", to=_FLOAT)
    is_padding = graph.node("Sub", [graph.weight("one", 1.0), as_float])
    bias = graph.node("Mul", [is_padding, graph.weight("masked_score", MASK_BIAS)])
    # The additive attention mask [B, 1, 1, S].
    additive_mask = graph.node("Unsqueeze", [bias, graph.ints([1, 2])], "added_mask")
    layer_outputs = []
    for index, layer in enumerate(bert.encoder.transformer_layers):
        name = f"encoder/layer_{index}"
        attention = f"{name}/attention"
        context = _attention(graph, layer.attention, hidden, additive_mask, f"{attention}/self")
        hidden = _residual(graph, layer.attention_output, context, hidden, f"{attention}/output")
        dense = layer.intermediate
        x = graph.dense(hidden, dense.kernel, dense.bias, f"{name}/intermediate")
        x = graph.activation(x, bert.config.hidden_act, f"{name}/intermediate/activation")
        hidden = _residual(graph, layer.feed_forward_output, x, hidden, f"{name}/output")
        layer_outputs.append(hidden)
    return layer_outputs


def _embeddings(graph: Graph, bert: BertModel, ids: str, segment_ids: str) -> str:
    layer = bert.embeddings
    word_table = graph.weight("embeddings/word_table", layer.word_embeddings)
    segment_table = graph.weight("embeddings/token_type_table", layer.token_type_embeddings)
    words = graph.node("Gather", [word_table, ids])  # [B, S, H]
    segments = graph.node("Gather", [segment_table, segment_ids])  # [B, S, H]
    length = graph.node("Shape", [ids], start=1, end=2)
    table = graph.weight("embeddings/position_table", layer.position_embeddings)
    positions = graph.node("Slice", [table, graph.ints([0]), length, graph.ints([0])])  # [S, H]
    total = graph.node("Add", [words, segments])
    total = graph.node("Add", [total, positions], "embeddings/sum")
    return graph.layer_norm(total, layer.layer_norm, "embeddings/LayerNorm")


def _attention(graph: Graph, layer: Any, hidden: str, additive_mask: str, name: str) -> str:
    """Adds self-attention, [B, S, H] -> [B, S, H], with a single fused QKV projection."""
    num_heads, head_size = layer.num_heads, layer.head_size
    scale = 1.0 / math.sqrt(head_size)
    projections = (layer.query, layer.key, layer.value)
    kernels, biases = (
        [np.asarray(getattr(p, kind), np.float32) for p in projections]
        for kind in ("kernel", "bias")
    )
    # Scale the queries instead of the scores.
    kernels[0], biases[0] = kernels[0] * scale, biases[0] * scale
    qkv = graph.dense(hidden, np.concatenate(kernels, 1), np.concatenate(biases), f"{name}/qkv")
    parts = graph.multi_output_node("Split", [qkv], 3, f"{name}/split", axis=-1, num_outputs=3)
    # In shapes, 0 keeps the size of the input: [B, S, H] <-> [B, S, N, D].
    split_shape = graph.ints([0, 0, num_heads, head_size])
    merged_shape = graph.ints([0, 0, num_heads * head_size])
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])  # The key becomes [B, N, D, S].
    query, key, value = (
        graph.node("Transpose", [graph.node("Reshape", [part, split_shape])], perm=order)
        for part, order in zip(parts, orders, strict=True)
    )
    scores = graph.node("Add", [graph.node("MatMul", [query, key]), additive_mask])  # [B, N, S, S]
    probabilities = graph.node("Softmax", [scores], f"{name}/probabilities", axis=-1)
    context = graph.node("MatMul", [probabilities, value])  # [B, N, S, D]
    merged = graph.node("Transpose", [context], perm=[0, 2, 1, 3])
    return graph.node("Reshape", [merged, merged_shape], f"{name}/context")


def _residual(graph: Graph, layer: Any, x: str, residual: str, name: str) -> str:
    """Adds a dense layer, a residual connection and a layer normalization, see `ResidualOutput`."""
    dense = graph.dense(x, layer.dense.kernel, layer.dense.bias, f"{name}/dense")
    total = graph.node("Add", [dense, residual])
    return graph.layer_norm(total, layer.layer_norm, f"{name}/LayerNorm")


def _pool(graph: Graph, sequence_output: str, pooling: str) -> str:
    """Adds the pooling of an encoder: [B, S, H] -> [B, H]."""
    if pooling == "cls":
        return graph.first_token(sequence_output)
    weights = graph.node("Unsqueeze", ["attention_mask/float", graph.ints([2])])  # [B, S, 1]
    if pooling == "max":
        is_token = graph.node("Cast", [weights], to=_BOOL)
        lowest = graph.weight("lowest", np.finfo(np.float32).min)
        kept = graph.node("Where", [is_token, sequence_output, lowest])
        return graph.node("ReduceMax", [kept, graph.ints([1])], keepdims=0)
    kept = graph.node("Mul", [sequence_output, weights])
    total = graph.node("ReduceSum", [kept, graph.ints([1])], keepdims=0)
    count = graph.node("ReduceSum", [weights, graph.ints([1])], keepdims=0)
    return graph.node("Div", [total, graph.node("Max", [count, "one"])])
