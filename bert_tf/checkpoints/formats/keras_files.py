"""Reads and writes bert_tf models as Keras files: `.keras` (complete), `.weights.h5` (weights)."""

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import keras
import numpy as np

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, reason
from bert_tf.checkpoints.formats import heads
from bert_tf.checkpoints.formats.configs import POOLER
from bert_tf.checkpoints.formats.source import Source
from bert_tf.config import BertConfig
from bert_tf.modeling.configured_model import ConfiguredModel, HeadFormat
from bert_tf.modeling.heads import ROOT_HEAD

MODEL_EXTENSION = ".keras"
WEIGHTS_EXTENSION = ".weights.h5"

# Member of a `.keras` file that describes the model's class and arguments.
_CONFIG = "config.json"
# Module and name of the only class that a file may reference besides its model.
_DTYPE_POLICY = ("keras", "DTypePolicy")
# Size limit of config.json, which typically has a few kilobytes.
_MAX_CONFIG_BYTES = 1 << 20
# Upper bound on the size of HDF5's metadata, in bytes.
_H5_OVERHEAD = 1 << 22


class KerasSource(Source):
    """A model in a `.keras` or `.weights.h5` file."""

    kind = "keras"

    def __init__(self, path: str) -> None:
        super().__init__(path, os.path.dirname(path) or ".")
        is_complete = path.endswith(MODEL_EXTENSION)
        if is_complete:
            self.config_file = None
            self._model_class = _find_class(path)
        else:
            self.head, self._model = _build_model(path)
        try:
            if is_complete:
                self._model = keras.saving.load_model(path, compile=False, safe_mode=True)
            else:
                self._model.load_weights(path)
        except Exception as error:  # Keras raises many types of errors.
            raise UserError(f"cannot be loaded: {reason(error)}", at=path) from error
        self._variables = checkpoints.named_variables(self._model)

    def config(self) -> BertConfig | None:
        """Returns the configuration: inside a `.keras` file, or beside a `.weights.h5` file."""
        return self._model.config if self.path.endswith(MODEL_EXTENSION) else super().config()

    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes and dtypes of all variables by name."""
        return {name: (list(v.shape), v.dtype) for name, v in self._variables.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time."""
        for name in names:
            yield name, keras.ops.convert_to_numpy(self._variables[name])


def build(head: HeadFormat, config: BertConfig, num_outputs: int) -> Any:
    """Builds a model with random weights; `num_outputs` is only used for heads with labels."""
    if head.model is None:
        raise UserError("Keras models with a masked-LM head need one for next sentences, too")
    # A multiple-choice model, for rows [B, C, S], is stored as its base class, for rows [B, S].
    bases = (base for base in head.model.__mro__ if vars(base).get("head_format"))
    model_class = next((base for base in bases if base.input_rank == 2), head.model)
    has_labels = model_class.head_format.outputs == "labels"
    return model_class(config, num_outputs) if has_labels else model_class(config)


def write(
    path: str, head: HeadFormat, config: BertConfig, weights: Mapping[str, np.ndarray]
) -> None:
    """Writes a model; the extension of `path` determines the format."""
    shapes = {name: value.shape for name, value in weights.items()}
    model = build(head, config, head.count_outputs(shapes))
    for name, variable in checkpoints.named_variables(model).items():
        if name not in weights and name not in POOLER:  # which an encoder may lack
            raise UserError(f"{type(model).__name__}: head_format does not list {name}")
        variable.assign(weights.get(name, np.zeros(variable.shape)))
    with files.wrap_errors("write", path):
        if hasattr(os, "posix_fallocate"):
            # Reserve the space first: with a full disk, h5py crashes and prints tracebacks.
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 4 * model.count_params() + _H5_OVERHEAD)
        model.save(path) if path.endswith(MODEL_EXTENSION) else model.save_weights(path)


def _find_class(path: str) -> Any:
    """Returns the model class of a `.keras` file, which must be registered with Keras.

    Raises a UserError if the file references other classes. Loading a file imports all classes that
    it references, so this must be checked beforehand.
    """
    heads.registered()  # imports our model classes, which registers them with Keras
    try:
        with zipfile.ZipFile(path) as archive:
            is_large = archive.getinfo(_CONFIG).file_size > _MAX_CONFIG_BYTES
            description = None if is_large else json.loads(archive.read(_CONFIG))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, RecursionError) as error:
        raise UserError(f"not a complete .keras file: {reason(error)}", at=path) from error
    name = description.get("registered_name") if isinstance(description, dict) else None
    model = keras.saving.get_registered_object(str(name))
    is_model = isinstance(model, type) and issubclass(model, ConfiguredModel)
    objects = _find_objects(description)
    found = [(entry.get("module"), entry["class_name"]) for entry in objects]
    classes = [pair for pair in found if pair != _DTYPE_POLICY]
    # Keras finds a model by its registered name, so the module in the file may be an outdated path.
    if not is_model or [found for _, found in classes] != [model.__name__]:
        listed = ", ".join(dict.fromkeys(f"{module}.{name}" for module, name in classes[:8]))
        expected = "a model of bert_tf.modeling, or of a class whose module has been imported"
        raise UserError(f"expected {expected}. It contains: {listed or 'no classes'}", at=path)
    return model


def _find_objects(description: Any) -> Iterator[dict[str, Any]]:
    """Yields the description of each object whose class Keras would import."""
    children = description
    if isinstance(description, dict):
        if "class_name" in description:
            yield description
        # Loading with compile=False ignores `compile_config`.
        children = [value for key, value in description.items() if key != "compile_config"]
    for child in children if isinstance(children, list) else ():
        yield from _find_objects(child)


def _build_model(path: str) -> tuple[HeadFormat, Any]:
    """Returns the head of a `.weights.h5` file, and a model of its sizes with random weights."""
    try:
        with h5py.File(path, "r") as file:
            head, sizes, num_outputs = _inspect(file)
    # h5py raises these errors for damaged files, and `_inspect` for files of other models.
    except (OSError, LookupError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        problem = "not a complete weights file of a bert_tf.modeling model"
        raise UserError(f"{problem}: {reason(error)}", at=path) from error
    # Unknown, but irrelevant: shapes do not depend on the number of attention heads.
    config = BertConfig.from_dict({**sizes, "num_attention_heads": 1})
    return head, build(head, config, num_outputs)


def _inspect(file: Any) -> tuple[HeadFormat, dict[str, int], int]:
    """Infers head, sizes and number of outputs from the structure of an HDF5 file."""
    known = heads.registered()
    if "bert" not in file:
        name = "encoder"
    elif "layers/masked_lm_head" in file:
        name = "pretraining"
    elif (layer := file["head/vars"].attrs["name"]) == ROOT_HEAD:
        # Text and token classifiers differ only in the model's name, which users rarely change.
        is_token = str(file["vars"].attrs["name"]).startswith("bert_token_classifier")
        name = "token" if is_token else "classification"
    else:
        # A head's variables have its layer as a scope.
        found = [n for n, h in known.items() if any(f"/{layer}/" in f"/{v}" for v in h.variables)]
        name = found[0]
    head = known[name]
    encoder = file if name == "encoder" else file["bert"]
    words, types, positions = (encoder[f"embeddings/vars/{index}"].shape for index in range(3))
    layers = encoder["encoder/transformer_layers"]
    sizes = {
        "vocab_size": words[0],
        "hidden_size": words[1],
        "type_vocab_size": types[0],
        "max_position_embeddings": positions[0],
        "num_hidden_layers": len(layers),
        "intermediate_size": layers["transformer_layer/intermediate/vars/0"].shape[1],
    }
    num_outputs = file["head/vars/0"].shape[0] if head.has_labels else 0
    return head, sizes, num_outputs
