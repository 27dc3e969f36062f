"""Keras' files: `.keras`, a whole model of `bert_tf.modeling`, and `.weights.h5`, numbers only."""

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import keras
import numpy as np

from bert_tf import checkpoints
from bert_tf.checkpoints.formats.base import Source
from bert_tf.checkpoints.formats.heads import HEADS, Head
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

WHOLE = ".keras"
WEIGHTS = ".weights.h5"

_CONFIG = "config.json"
_MODELS = {f"bert_tf>{head.model.__name__}": name for name, head in HEADS.items() if head.model}
_MODULES = ("bert_tf.modeling.bert", "bert_tf.modeling.heads")
# What else may stand in a file.
_PART = ("keras", "DTypePolicy")
# Of a description; a configuration is some thousand characters.
_MOST_BYTES = 1 << 20
# What HDF5 adds to the weights, at most.
_H5_BYTES = 1 << 22


class KerasSource(Source):
    """A model in one of Keras' files.

    Args:
        path: `.keras` or `.weights.h5`.

    Raises:
        UserError: the file is damaged, or is not of a model of this package.
    """

    kind = "keras"

    def __init__(self, path: str) -> None:
        super().__init__(path, os.path.dirname(path) or ".")
        if path.endswith(WHOLE):
            self.config_file = None
            self.head = _head_of_whole(path)
            self._model = _load_whole(path)
        else:
            self.head, self._model = _load_weights(path)
        self._variables = checkpoints.named_variables(self._model)

    def config(self) -> BertConfig | None:
        """The configuration; that of a `.weights.h5` lies beside it, if anywhere."""
        return self._model.config if self.path.endswith(WHOLE) else super().config()

    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of all variables."""
        return {name: list(variable.shape) for name, variable in self._variables.items()}

    def types(self) -> dict[str, str]:
        """Names and types of all variables."""
        return {name: variable.dtype for name, variable in self._variables.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values, one at a time."""
        for name in names:
            yield name, keras.ops.convert_to_numpy(self._variables[name])


def build(head: Head, config: BertConfig, outputs: int) -> Any:
    """A model with random weights.

    Args:
        head: of it.
        config: of its encoder.
        outputs: of the head, where that is a matter of the task.

    Raises:
        UserError: Keras has no model with this head.
    """
    if head.model is None:
        raise UserError(
            "Keras models predict masked words and next sentences together, and this one has only "
            "the first: pass --head=encoder to leave the head out"
        )
    return head.model(config, outputs) if head.has_labels else head.model(config)


def write(path: str, head: Head, config: BertConfig, weights: Mapping[str, np.ndarray]) -> None:
    """Writes a model; the ending says as what.

    Raises:
        UserError: Keras has no such model, or the file cannot be written.
    """
    outputs = len(weights[head.variables[0]]) if head.variables else 0
    model = build(head, config, outputs)
    for name, variable in checkpoints.named_variables(model).items():
        variable.assign(weights[name])
    try:
        if hasattr(os, "posix_fallocate"):
            # When the disk is full, h5py prints tracebacks and crashes.
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 4 * model.count_params() + _H5_BYTES)
        model.save(path) if path.endswith(WHOLE) else model.save_weights(path)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror or error}") from error


def _head_of_whole(path: str) -> str:
    """The head of the model in a `.keras` file, after a look at all that would be made of it.

    Keras imports what a file names. Only our models pass, so nothing else ever is.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(_CONFIG).file_size > _MOST_BYTES:
                raise UserError(f"{path}: its {_CONFIG} is too large to be that of a BERT")
            found = json.loads(archive.read(_CONFIG))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not a complete .keras file ({error})") from error
    kind = found.get("registered_name") if isinstance(found, dict) else None
    others = [place for place in _classes(found) if place != _PART]
    own = [(module, str(kind).split(">")[-1]) for module in _MODULES]
    if kind not in _MODELS or len(others) != 1 or others[0] not in own:
        shown = ", ".join(dict.fromkeys(f"{module}.{name}" for module, name in others[:8]))
        raise UserError(
            f"{path} is not a model of bert_tf.modeling, of which only a model itself is read, and "
            f"nothing around it. It has: {shown or 'nothing that can be read'}"
        )
    return _MODELS[kind]


def _classes(part: Any) -> Iterator[tuple[Any, Any]]:
    """What a description would have Keras import, at any depth: modules and names in them."""
    if isinstance(part, dict):
        # `compile_config` is not looked at: models are loaded without it.
        if "class_name" in part:
            yield part.get("module"), part["class_name"]
        for key, inside in part.items():
            if key != "compile_config":
                yield from _classes(inside)
    elif isinstance(part, list):
        for inside in part:
            yield from _classes(inside)


def _load_whole(path: str) -> Any:
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        # Keras' errors are of many kinds, and say what does not fit.
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} cannot be loaded: {reason}") from error


def _load_weights(path: str) -> tuple[str, Any]:
    """Head and model of a file that has numbers only; sizes are those of the numbers."""
    try:
        with h5py.File(path, "r") as file:
            head, sizes, outputs = _look(file)
    # What h5py raises for a damaged file, and Python for one of something else.
    except (OSError, LookupError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path} is not a complete file of weights of a model of bert_tf.modeling ({error})"
        ) from error
    # How many heads it has changes nothing about its weights.
    config = BertConfig.from_dict({**sizes, "num_attention_heads": 1})
    model = build(HEADS[head], config, outputs)
    try:
        model.load_weights(path)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} cannot be loaded: {reason}") from error
    return head, model


def _look(file: Any) -> tuple[str, dict[str, int], int]:
    """Head, sizes and outputs of a model, from where Keras writes its parts."""
    if "bert" not in file:
        head = "encoder"
    elif "layers/masked_lm_head" in file:
        head = "pretraining"
    elif file["head/vars"].attrs["name"] == "squad":
        head = "span"
    else:
        # The name of the model is its user's, but few give one.
        own = str(file["vars"].attrs["name"]).startswith("bert_token_classifier")
        head = "token" if own else "classification"
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
    labelled = HEADS[head].has_labels
    return head, sizes, file["head/vars/0"].shape[0] if labelled else 0
