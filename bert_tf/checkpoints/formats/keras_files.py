"""Keras files: `.keras`, a whole model of `bert_tf.modeling`, and `.weights.h5`, weights only."""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import keras
import numpy as np

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats.heads import HEADS, Head
from bert_tf.checkpoints.formats.source import Source
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, reason

WHOLE = ".keras"
WEIGHTS = ".weights.h5"

_CONFIG = "config.json"
_MODELS = {f"bert_tf>{head.model.__name__}": name for name, head in HEADS.items() if head.model}
# The only other class that a file may name.
_PART = ("keras", "DTypePolicy")
# Limit of config.json, which has a few thousand characters.
_MAX_CONFIG_BYTES = 1 << 20
# Upper bound of what HDF5 adds to the weights.
_H5_OVERHEAD = 1 << 22


class KerasSource(Source):
    """A model in a `.keras` or `.weights.h5` file."""

    kind = "keras"

    def __init__(self, path: str) -> None:
        super().__init__(path, os.path.dirname(path) or ".")
        if path.endswith(WHOLE):
            self.config_file = None
            self.head = _head_of_whole(path)
            with _loading(path):
                self._model = keras.saving.load_model(path, compile=False, safe_mode=True)
        else:
            self.head, self._model = _load_weights(path)
        self._variables = checkpoints.named_variables(self._model)

    def config(self) -> BertConfig | None:
        """Returns the configuration; a `.weights.h5` has one only in a file beside it."""
        return self._model.config if self.path.endswith(WHOLE) else super().config()

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of all variables by name."""
        return {name: list(variable.shape) for name, variable in self._variables.items()}

    def types(self) -> dict[str, str]:
        """Returns the types of all variables by name."""
        return {name: variable.dtype for name, variable in self._variables.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values of some variables, one at a time."""
        for name in names:
            yield name, keras.ops.convert_to_numpy(self._variables[name])


def build(head: Head, config: BertConfig, outputs: int) -> Any:
    """Builds a model with random weights; `outputs` counts those of a head with labels."""
    if head.model is None:
        problem = "Keras models have both pre-training heads, this one only the masked-LM head"
        raise UserError(f"{problem}: pass --head=encoder to leave it out")
    return head.model(config, outputs) if head.has_labels else head.model(config)


def write(path: str, head: Head, config: BertConfig, weights: Mapping[str, np.ndarray]) -> None:
    """Writes a model; the ending of `path` determines the format."""
    outputs = len(weights[head.variables[0]]) if head.variables else 0
    model = build(head, config, outputs)
    for name, variable in checkpoints.named_variables(model).items():
        variable.assign(weights[name])
    with files.explained("write", path):
        if hasattr(os, "posix_fallocate"):
            # Reserve the space, because h5py crashes with tracebacks when the disk is full.
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 4 * model.count_params() + _H5_OVERHEAD)
        model.save(path) if path.endswith(WHOLE) else model.save_weights(path)


def _head_of_whole(path: str) -> str:
    """Returns the head of a `.keras` file that names no classes but those of our models.

    Keras imports whatever classes a file names, so all others are refused before it is loaded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            is_large = archive.getinfo(_CONFIG).file_size > _MAX_CONFIG_BYTES
            description = None if is_large else json.loads(archive.read(_CONFIG))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, RecursionError) as error:
        raise UserError(f"{path} is not a complete .keras file ({error})") from error
    kind = description.get("registered_name") if isinstance(description, dict) else None
    classes = [name for name in _classes(description) if name != _PART]
    # Keras finds our classes by their registered names, so a file may name a module that has moved.
    is_own = len(classes) == 1 and str(classes[0][0]).startswith("bert_tf.")
    if kind not in _MODELS or not is_own or classes[0][1] != kind.removeprefix("bert_tf>"):
        shown = ", ".join(dict.fromkeys(f"{module}.{name}" for module, name in classes[:8]))
        has = shown or "no classes"
        raise UserError(f"{path} is not a model of bert_tf.modeling alone. It has: {has}")
    return _MODELS[kind]


def _classes(part: Any) -> Iterator[tuple[Any, Any]]:
    """Yields modules and names of all classes that Keras would import for a description."""
    if isinstance(part, dict):
        # Models are loaded without `compile_config`.
        if "class_name" in part:
            yield part.get("module"), part["class_name"]
        part = [value for key, value in part.items() if key != "compile_config"]
    for value in part if isinstance(part, list) else ():
        yield from _classes(value)


@contextlib.contextmanager
def _loading(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Keras raises many kinds of errors.
        raise UserError(f"{path} cannot be loaded: {reason(error)}") from error


def _load_weights(path: str) -> tuple[str, Any]:
    """Returns head and model of a `.weights.h5` file, with the sizes of its shapes."""
    try:
        with h5py.File(path, "r") as file:
            head, sizes, outputs = _inspect(file)
    # Raised by h5py for damaged files, and by `_inspect` for those of other models.
    except (OSError, LookupError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        kind = "a complete file of weights of bert_tf.modeling"
        raise UserError(f"{path} is not {kind} ({error})") from error
    # The number of attention heads does not affect the weights.
    config = BertConfig.from_dict({**sizes, "num_attention_heads": 1})
    model = build(HEADS[head], config, outputs)
    with _loading(path):
        model.load_weights(path)
    return head, model


def _inspect(file: Any) -> tuple[str, dict[str, int], int]:
    """Returns head, sizes and outputs of a model, from the structure of its HDF5 file."""
    if "bert" not in file:
        head = "encoder"
    elif "layers/masked_lm_head" in file:
        head = "pretraining"
    elif file["head/vars"].attrs["name"] == "squad":
        head = "span"
    else:
        # By the default name of the model, which users rarely change.
        is_token = str(file["vars"].attrs["name"]).startswith("bert_token_classifier")
        head = "token" if is_token else "classification"
    encoder = file if head == "encoder" else file["bert"]
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
    outputs = file["head/vars/0"].shape[0] if HEADS[head].has_labels else 0
    return head, sizes, outputs
