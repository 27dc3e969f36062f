"""Reads BERT encoders from SavedModels, such as those of TensorFlow Hub, without running them.

The folder `variables/` contains an object-based checkpoint. TensorFlow Hub's encoders for
TensorFlow 2 also store the vocabulary, as the asset `vocab_file`, and `do_lower_case`.
"""

import os
from typing import Any

from bert_tf import files
from bert_tf.checkpoints.formats import heads
from bert_tf.checkpoints.formats.model_garden import ModelGardenSource
from bert_tf.checkpoints.formats.source import find_file
from bert_tf.checkpoints.run_folder import CONFIG
from bert_tf.errors import UserError
from bert_tf.modeling.heads import ROOT_HEAD

GRAPH_FILE = "saved_model.pb"
# Inputs of TensorFlow Hub's encoders, in the order input_ids, input_mask, segment_ids.
ENCODER_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
# Attributes with the vocabulary: in TensorFlow Hub's encoders, and in fine-tuned bert_tf models.
_VOCABULARY_ATTRIBUTES = ("vocab_file", "vocab")
# Key of the casing in the checkpoint.
_LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
# Variables of models that `export_model.py` wrote: they already have the original BERT's names.
_EXPORT_SCOPES = ("bert/embeddings/", "bert/encoder/layer_", "bert/pooler/")


class SavedModelSource(ModelGardenSource):
    """The weights of a SavedModel; `is_encoder` means that it is callable, like TF Hub encoders."""

    kind = "saved_model"

    def __init__(self, folder: str) -> None:
        prefix = os.path.join(folder, "variables", "variables")
        for path in (os.path.join(folder, GRAPH_FILE), f"{prefix}.index"):
            if not files.exists(path):
                problem = f"No such file: {path} ({files.describe_absence(path)})"
                advice = f"Pass the folder with {GRAPH_FILE} and variables/, such as my_model/1"
                raise UserError(f"{problem}. {advice}")
        meta_graph = _read_meta_graph(folder)
        nodes = meta_graph.object_graph_def.nodes
        if not nodes:
            advice = "Use its TensorFlow 2 version, or the checkpoint that it was made from"
            kind = "a TensorFlow Hub module for TensorFlow 1"
            raise UserError(f"{folder} is {kind}. {advice} (docs/checkpoints.md)")
        super().__init__(prefix, folder)
        extra_assets = os.path.join(folder, "assets.extra")
        self.config_file = find_file(extra_assets, CONFIG)
        assets = os.path.join(folder, "assets")
        self._labels_folder = assets
        children = {child.local_name: nodes[child.node_id] for child in nodes[0].children}
        self.is_encoder = "__call__" in children
        for name in _VOCABULARY_ATTRIBUTES:
            if name in children and children[name].HasField("asset"):
                asset = meta_graph.asset_file_def[children[name].asset.asset_file_def_index]
                self.vocab_file = find_file(assets, os.path.basename(asset.filename))
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


def _read_meta_graph(folder: str) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    path = os.path.join(folder, GRAPH_FILE)
    model = saved_model_pb2.SavedModel()
    try:
        with files.open_binary(path) as file:
            model.ParseFromString(file.read())
        return model.meta_graphs[0]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} is damaged: copy or download it again") from error
