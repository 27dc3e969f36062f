"""Reads BERT encoders from object-based checkpoints of the TensorFlow Model Garden.

In these checkpoints, the key of a variable is its path through the graph of Python objects. Paths
differ between versions, so variables are matched by the names that are also stored, such as
`transformer/layer_0/self_attention/query/kernel`, unchanged since 2020 (up to tf-models-official
2.20). Names from 2019, such as `bert_model/encoder/layer_0/...`, also match.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, shortened
from bert_tf.checkpoints.formats import configs
from bert_tf.checkpoints.formats.source import Source
from bert_tf.checkpoints.tensors import OBJECT_GRAPH, explained_read_errors, open_reader
from bert_tf.config import BertConfig
from bert_tf.modeling.heads import MASKED_LM

# Scope within an encoder layer -> scope in the original BERT.
_LAYER_SCOPES = {
    "self_attention/query": "attention/self/query",
    "self_attention/key": "attention/self/key",
    "self_attention/value": "attention/self/value",
    "self_attention/attention_output": "attention/output/dense",
    # In the first versions, the output projection was a layer of its own.
    "self_attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
# End of the name of a variable outside the encoder layers -> name in the original.
_OUTSIDE_LAYERS = {
    "word_embeddings/embeddings": configs.WORD_EMBEDDINGS,
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "embedding_postprocessor/type_embeddings": "bert/embeddings/token_type_embeddings",
    "embedding_postprocessor/position_embeddings": "bert/embeddings/position_embeddings",
    "layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "pooler_transform/bias": "bert/pooler/dense/bias",
    "pooler_transform/kernel": "bert/pooler/dense/kernel",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
    **{name: name for name in MASKED_LM.variables if name.startswith("cls/predictions/transform/")},
}
_LAYER_NAME = re.compile(
    r"(?:transformer|bert_model/encoder)/layer_(\d+)/(.+)/(kernel|bias|beta|gamma)$"
)
_OPTIMIZER = re.compile(r"(^|/)(optimizer|_?optimizer_[^/]*)/|\.OPTIMIZER_SLOT")
# Keys of the save counter and the step counter.
_COUNTERS = re.compile(r"^(save_counter|global_step|step)/")


class ModelGardenSource(Source):
    """A BERT encoder of the Model Garden, with its masked-LM head if there is one.

    `path` is the path shown in messages, by default the checkpoint's prefix.
    """

    kind = "model_garden"

    def __init__(self, prefix: str, path: str | None = None) -> None:
        path = path or prefix
        super().__init__(path, os.path.dirname(prefix) or ".")
        self._reader = open_reader(prefix)
        self._keys: dict[str, str] = {}  # original name -> key in the checkpoint
        ignored = set()
        for variable, key in _list_variables(self._reader, path):
            name = self.original_name(variable)
            if name is None:
                ignored.add(variable or key)
            elif name in self._keys:
                # Keras' export stores each variable of a functional model under two keys.
                if np.array_equal(*map(self._reader.get_tensor, (self._keys[name], key))):
                    continue
                duplicates = f"{variable} is stored twice, as {self._keys[name]} and {key}"
                raise UserError(f"several encoders: {duplicates}", at=path)
            else:
                self._keys[name] = key
        listed = shortened(sorted(ignored), 4)
        if configs.WORD_EMBEDDINGS not in self._keys:
            problem = "no BERT encoder of the Model Garden"
            raise UserError(f"{problem}. It contains: {listed or 'no weights'}", at=path)
        if ignored:
            self.notes.append(f"Ignoring variables of {path} that are not part of BERT: {listed}")

    def original_name(self, variable: str) -> str | None:
        """Returns the original's name of a variable; None if it is not part of BERT."""
        layer = _LAYER_NAME.search(variable)
        if layer and layer[2] in _LAYER_SCOPES:
            return f"bert/encoder/layer_{layer[1]}/{_LAYER_SCOPES[layer[2]]}/{layer[3]}"
        # Some versions prepend the model's name, so only the end is compared.
        endings = (ending for ending in _OUTSIDE_LAYERS if f"/{variable}".endswith(f"/{ending}"))
        return _OUTSIDE_LAYERS.get(next(endings, ""))

    def config(self) -> BertConfig | None:
        """Returns the configuration; infers it from the shapes if there is no file."""
        config = super().config()
        query = "bert/encoder/layer_0/attention/self/query/kernel"
        sizes = configs.infer_sizes(self.shapes())
        query_shape = self._stored_shape(query) if query in self._keys else []  # [H, N, D]
        if len(query_shape) < 3 or len(sizes) < 6:
            return config
        num_heads = query_shape[1]
        inferred = BertConfig.from_dict({**sizes, "num_attention_heads": num_heads})
        configured = (config or inferred).num_attention_heads
        if configured != num_heads:
            heads = f"num_attention_heads is {configured}, but {num_heads} in the weights"
            raise UserError(f"not the configuration of {self.path}: {heads}", at=self.config_file)
        return config or inferred

    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns shapes, in the layout of the original BERT, and stored dtypes by name."""
        kinds = self._reader.get_variable_to_dtype_map()
        shapes = {name: _flat_shape(name, self._stored_shape(name)) for name in self._keys}
        return {name: (shape, kinds[self._keys[name]].name) for name, shape in shapes.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time."""
        for name in names:
            with explained_read_errors(self.path):
                value = self._reader.get_tensor(self._keys[name])
            yield name, value.reshape(_flat_shape(name, list(value.shape)))

    def _stored_shape(self, name: str) -> list[int]:
        return list(self._reader.get_variable_to_shape_map()[self._keys[name]])


def _list_variables(reader: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields the name and key of each weight, but not of optimizer variables and counters."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    with explained_read_errors(path):
        content = reader.get_tensor(OBJECT_GRAPH)
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    # Skip integer variables, which are flags and the states of random generators.
    kinds = reader.get_variable_to_dtype_map()
    stored = {key for key, kind in kinds.items() if kind.is_floating}
    for node in graph.nodes:
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            if key in stored and not _OPTIMIZER.search(key) and not _COUNTERS.match(key):
                yield attribute.full_name, key


def _flat_shape(name: str, shape: list[int]) -> list[int]:
    """Merges the axes of N heads and head size D into H: [H, N, D] -> [H, H], [N, D] -> [H]."""
    if name.endswith("/attention/output/dense/kernel"):
        return [math.prod(shape[:-1]), shape[-1]]
    if "/attention/self/" in name:
        kept = shape[:1] if name.endswith("kernel") else []
        return [*kept, math.prod(shape[len(kept) :])]
    return shape
