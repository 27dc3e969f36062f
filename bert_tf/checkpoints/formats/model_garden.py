"""BERT encoders of TensorFlow's Model Garden: object-based checkpoints, read only.

Such a file names a variable by the way through Python objects that led to it, which differs from
version to version (`encoder/layer_with_weights-4/...`, `encoder/_transformer_layers/0/...`). It
also says what each variable was called, `transformer/layer_0/self_attention/query/kernel`, and
that has stayed since 2020. Seen in files that `BertEncoder` and `BertEncoderV2` of
tf-models-official 2.20 wrote. In the first models of 2019 it is `bert_model/encoder/layer_0/...`,
by the names in the Garden's own converter.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.formats import configs, names
from bert_tf.checkpoints.formats.base import Source
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# Scopes of a layer there, and the original's.
_LAYER = {
    "self_attention/query": "attention/self/query",
    "self_attention/key": "attention/self/key",
    "self_attention/value": "attention/self/value",
    "self_attention/attention_output": "attention/output/dense",
    # In the first versions a layer of its own.
    "self_attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_OUTSIDE = {
    "word_embeddings/embeddings": names.WORD_EMBEDDINGS,
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "embeddings/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "embeddings/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "embedding_postprocessor/type_embeddings": "bert/embeddings/token_type_embeddings",
    "embedding_postprocessor/position_embeddings": "bert/embeddings/position_embeddings",
    "embedding_postprocessor/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "embedding_postprocessor/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "pooler_transform/bias": "bert/pooler/dense/bias",
    "pooler_transform/kernel": "bert/pooler/dense/kernel",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
    **{
        name: name
        for part in ("dense/bias", "dense/kernel", "LayerNorm/beta", "LayerNorm/gamma")
        for name in [f"cls/predictions/transform/{part}"]
    },
}
_LAYER_NAME = re.compile(
    r"(?:transformer|bert_model/encoder)/layer_(\d+)/(.+)/(kernel|bias|beta|gamma)$"
)
_OPTIMIZER = re.compile(r"(^|/)(optimizer|_?optimizer_[^/]*)/|\.OPTIMIZER_SLOT")
# What a file has beside weights: counters of the file itself and of a training.
_COUNTERS = re.compile(r"^(save_counter|global_step|step)/")


def is_object_based(prefix: str) -> bool:
    """Whether a checkpoint is of TensorFlow 2's own kind."""
    try:
        return tf.train.load_checkpoint(prefix).has_tensor(_GRAPH)
    except (tf.errors.OpError, LookupError, RuntimeError, ValueError):
        # Who reads it says what is wrong with it.
        return False


class GardenSource(Source):
    """A BERT encoder of the Model Garden, and its head for masked words; all else is left.

    Args:
        prefix: of its files.
        path: what a user knows it by, where that is not the prefix.

    Raises:
        UserError: it is of something else.
    """

    kind = "garden"

    def __init__(self, prefix: str, path: str | None = None) -> None:
        path = path or prefix
        super().__init__(path, os.path.dirname(prefix) or ".")
        self._reader = tf.train.load_checkpoint(prefix)
        self._keys: dict[str, str] = {}
        left = set()
        for called, key in _variables(self._reader, path):
            name = self.original_name(called)
            if name is None:
                left.add(called or key)
            elif name in self._keys:
                # Keras' export writes the variables of a functional model twice.
                if np.array_equal(*map(self._reader.get_tensor, (self._keys[name], key))):
                    continue
                raise UserError(
                    f"{path} has several encoders: {self._keys[name]} and {key} are both {called}"
                )
            else:
                self._keys[name] = key
        if names.WORD_EMBEDDINGS not in self._keys:
            shown = "no weights at all, as what prepares texts for an encoder"
            if left:
                shown = f"variables called {', '.join(sorted(left)[:4])}"
            raise UserError(
                f"{path} is a model of TensorFlow 2, but has no BERT encoder of the Model Garden "
                f"in it. It has {shown}"
            )
        if left:
            shown = ", ".join(sorted(left)[:4]) + (" ..." if len(left) > 4 else "")
            self.notes.append(f"Not all of {path} is read: {shown} are not BERT's")

    def original_name(self, called: str) -> str | None:
        """The original's name of a variable; None for one that BERT does not have."""
        layer = _LAYER_NAME.search(called)
        if layer and layer[2] in _LAYER:
            return f"bert/encoder/layer_{layer[1]}/{_LAYER[layer[2]]}/{layer[3]}"
        # Some versions put the name of the model before it.
        for end, name in _OUTSIDE.items():
            if called == end or called.endswith(f"/{end}"):
                return name
        return None

    def config(self) -> BertConfig | None:
        """The configuration beside it, or else what its shapes say, which in the Garden is all."""
        config = super().config()
        query = "bert/encoder/layer_0/attention/self/query/kernel"
        sizes = configs.guess(self.shapes())
        if query not in self._keys or len(sizes) < 6:
            return config
        stored = self._stored_shape(query)
        if len(stored) == 2:
            return config
        heads = stored[1]
        if config and config.num_attention_heads != heads:
            raise UserError(
                f"num_attention_heads is {config.num_attention_heads} in {self.config_file} and "
                f"{heads} in the weights of {self.path}: they do not belong together"
            )
        return config or BertConfig.from_dict({**sizes, "num_attention_heads": heads})

    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of the variables, in the original's terms."""
        return {name: _flat_shape(name, self._stored_shape(name)) for name in self._keys}

    def types(self) -> dict[str, str]:
        """Names and types of the variables."""
        kinds = self._reader.get_variable_to_dtype_map()
        return {name: kinds[key].name for name, key in self._keys.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values, one at a time.

        Raises:
            UserError: the file is damaged.
        """
        for name in names:
            try:
                value = self._reader.get_tensor(self._keys[name])
            except (tf.errors.OpError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200]
                raise UserError(f"Cannot read {name} in {self.path}: {reason}") from error
            yield name, value.reshape(_flat_shape(name, list(value.shape)))

    def _stored_shape(self, name: str) -> list[int]:
        return list(self._reader.get_variable_to_shape_map()[self._keys[name]])


def _variables(reader: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """What each weight was called, and where its values are; those of optimizers are left."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        graph.ParseFromString(reader.get_tensor(_GRAPH))
    except Exception as error:
        raise UserError(f"{prefix}: its object graph is damaged ({error})") from error
    # Switches and the state of random numbers are no weights.
    kinds = reader.get_variable_to_dtype_map()
    stored = {key for key, kind in kinds.items() if kind.is_floating}
    for node in graph.nodes:
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            if key in stored and not _OPTIMIZER.search(key) and not _COUNTERS.match(key):
                yield attribute.full_name, key


def _flat_shape(name: str, shape: list[int]) -> list[int]:
    """The shape without an axis for heads: [H, N, D] there is [H, H], and [N, D] is [H]."""
    if "/attention/self/" in name:
        kernel = name.endswith("kernel")
        return [shape[0], int(np.prod(shape[1:]))] if kernel else [int(np.prod(shape))]
    if name.endswith("/attention/output/dense/kernel"):
        return [int(np.prod(shape[:-1])), shape[-1]]
    return shape
