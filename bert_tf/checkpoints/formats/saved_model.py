"""Reads BERT encoders from SavedModels, such as those of TensorFlow Hub.

Only `require_same_outputs` runs their graphs, which may contain any code.

The folder `variables/` contains an object-based checkpoint. TensorFlow Hub's encoders for
TensorFlow 2 also store the vocabulary, as the asset `vocab_file`, and `do_lower_case`.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, reason
from bert_tf.checkpoints.formats import heads
from bert_tf.checkpoints.formats.model_garden import ModelGardenSource
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.run_folder import CONFIG, VOCAB, RunFolder
from bert_tf.checkpoints.tensors import folder_to_read
from bert_tf.config import BertConfig
from bert_tf.modeling import BertModel
from bert_tf.modeling.heads import ROOT_HEAD

GRAPH_FILE = "saved_model.pb"
_VARIABLES = os.path.join("variables", "variables")  # the prefix of its checkpoint
# Subfolder for extra files, which TensorFlow ignores.
EXTRA_FOLDER = "assets.extra"
# Inputs of TensorFlow Hub's encoders, in the order input_ids, input_mask, segment_ids.
ENCODER_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
# Attributes with the vocabulary: in TensorFlow Hub's encoders, and in fine-tuned bert_tf models.
_VOCABULARY_ATTRIBUTES = ("vocab_file", "vocab")
# Key of the casing in the checkpoint.
_LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
# Variables of models that `export_model.py` wrote: they already have the original BERT's names.
_EXPORT_SCOPES = ("bert/embeddings/", "bert/encoder/layer_", "bert/pooler/")
# Outputs are of order 1. Rounding changes them by 1e-5, the wrong form of gelu (tanh, erf) by 2e-3.
_TOLERANCE = 1e-3


def open_saved_model(folder: str) -> Source:
    """Opens the SavedModel in a folder, of TensorFlow 1 (an Estimator's export) or 2."""
    prefix = os.path.join(folder, _VARIABLES)
    if not files.exists(f"{prefix}.index") or _read_meta_graph(folder).object_graph_def.nodes:
        return SavedModelSource(folder)
    source = OriginalSource(prefix, folder)
    source.vocab_file = source.vocab_file or RunFolder(folder).find(f"assets/{VOCAB}")
    return source


class SavedModelSource(ModelGardenSource):
    """The weights of a SavedModel; `is_encoder` means that it is callable, like TF Hub encoders."""

    kind = "saved_model"

    def __init__(self, folder: str) -> None:
        prefix = os.path.join(folder, _VARIABLES)
        meta_graph = _read_meta_graph(folder)
        nodes = meta_graph.object_graph_def.nodes
        if not nodes:
            advice = "Use its TensorFlow 2 version, or the checkpoint that it was made from"
            raise UserError("a module for TensorFlow 1", at=folder, fix=advice)
        super().__init__(prefix, folder)
        extra_assets = os.path.join(folder, EXTRA_FOLDER)
        self.config_file = RunFolder(extra_assets).find(CONFIG)
        assets = os.path.join(folder, "assets")
        self._labels_folder = assets
        children = {child.local_name: nodes[child.node_id] for child in nodes[0].children}
        self.is_encoder = "__call__" in children
        for name in _VOCABULARY_ATTRIBUTES:
            if name in children and children[name].HasField("asset"):
                asset = meta_graph.asset_file_def[children[name].asset.asset_file_def_index]
                self.vocab_file = RunFolder(assets).find(os.path.basename(asset.filename))
        if self._reader.has_tensor(_LOWER_CASE):
            self.do_lower_case = bool(self._reader.get_tensor(_LOWER_CASE))
        self.read_run(extra_assets)

    def original_name(self, variable: str) -> str | None:
        """Returns a variable's name in original checkpoints; None if it is not part of BERT."""
        name = variable.removeprefix(f"{ROOT_HEAD}/")
        if name.startswith(_EXPORT_SCOPES) or any(
            name in head.variables for head in heads.registered().values()
        ):
            return name
        return super().original_name(variable)

    def require_same_outputs(self, config: BertConfig) -> None:
        """Raises a UserError if an encoder gives other outputs than a `BertModel` of its weights.

        A model with a different activation or layer order can have weights of the same names and
        shapes. Fine-tuning it as BERT would silently give worse results.
        """
        if not self.is_encoder:
            return
        row, position = np.mgrid[:2, : min(12, config.max_position_embeddings)]
        # The second row has two segments, and padding at its end.
        input_mask = (row == 0) | (position < 8)
        features = {
            "input_ids": (row * row.shape[1] + position) % config.vocab_size,
            "input_mask": input_mask,
            "segment_ids": ((row == 1) & (position >= 4)) % config.type_vocab_size,
        }
        with tf.device("/CPU:0"):
            inputs = {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}
            sequence_output, pooled_output = _run_module(self.path, [*inputs.values()])
            model = BertModel(config, zero_init_encoder=True, dtype="float32")
            variables = checkpoints.named_variables(model)
            for name, value in self.read(variables.keys() & self.shapes().keys()):
                variables[name].assign(value)
            outputs = model(inputs, training=False)
        errors = np.abs(outputs["sequence_output"].numpy() - sequence_output)[input_mask]
        pooled_errors = np.abs(outputs["pooled_output"].numpy() - pooled_output)
        difference = max(np.max(errors), np.max(pooled_errors))
        # `difference > _TOLERANCE` would be false for NaN, which must also be rejected.
        if not difference <= _TOLERANCE:
            problem = f"another architecture: its outputs differ from BERT's by {difference:.2g}"
            raise UserError(problem, at=self.path)


def _run_module(path: str, values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns `sequence_output` [2, S, H] and `pooled_output` [2, H] of a module."""
    try:
        module: Any = tf.saved_model.load(folder_to_read(path))
        try:
            outputs = module(dict(zip(ENCODER_INPUTS, values, strict=True)), training=False)
        except (ValueError, TypeError):
            # Encoders on TensorFlow Hub up to version 2 took and returned lists.
            outputs = module(values, training=False)
        if not isinstance(outputs, dict):
            outputs = dict(zip(("pooled_output", "sequence_output"), outputs, strict=True))
        return outputs["sequence_output"].numpy(), outputs["pooled_output"].numpy()
    except (AttributeError, KeyError, OSError, TypeError, ValueError, tf.errors.OpError) as error:
        problem = f"no encoder with the inputs {', '.join(ENCODER_INPUTS)}"
        raise UserError(f"{problem}: {reason(error)}", at=path) from error


def _read_meta_graph(folder: str) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    path = os.path.join(folder, GRAPH_FILE)
    with files.open_binary(path) as file:
        content = file.read()
    try:
        return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0]
    except Exception as error:
        raise UserError("damaged", at=path) from error
