"""Detects the format of the model at a path, and opens it."""

import inspect
import os
import re
from typing import Any

import keras

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.base.progress import log
from bert_tf.checkpoints.formats import archives, keras_files, safetensors_files
from bert_tf.checkpoints.formats.hugging_face import HuggingFaceSource
from bert_tf.checkpoints.formats.keras_files import KerasSource
from bert_tf.checkpoints.formats.model_garden import ModelGardenSource
from bert_tf.checkpoints.formats.saved_model import GRAPH_FILE, open_saved_model
from bert_tf.checkpoints.formats.sentence_transformers import encoder_folder
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.model import Restored, fold_target_scale, load_weights
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.checkpoints.tensors import OBJECT_GRAPH, open_reader
from bert_tf.modeling import BertModel
from bert_tf.modeling.configured_model import ConfiguredModel

_CONVERT = "BertModel.from_pretrained(folder{}).save_pretrained(new_folder)"
# Other files that people have: endings of their names, or their first bytes -> what to do.
_OTHER_FILES: dict[tuple[str | bytes, ...], str] = {
    (b"version https://git-lfs",): "is a pointer of Git LFS to the file: run git lfs pull",
    (b"<!DOCTYPE", b"<!doctype", b"<html"): "is a web page: download the file itself",
    (".bin", ".pt", ".pth", ".pkl", ".pickle", "pytorch_model.bin.index.json"): (
        "is a pickle, which can run arbitrary code when it is loaded. If you trust it, convert it "
        f"to safetensors with transformers, for example: {_CONVERT.format('')}"
    ),
    (".h5", ".hdf5", b"\x89HDF", ".msgpack"): (
        "has weights of Keras or Flax: convert it to safetensors with transformers below version "
        f"5, for example: {_CONVERT.format(', from_tf=True')}, or from_flax=True"
    ),
    (".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", b"\x1f\x8b", b"PK\3\4"): (
        "is an archive: unpack it, for example with tar -xf, and pass the model's folder"
    ),
    (".onnx", ".tflite", ".gguf", b"GGUF", ".pb"): (
        "is an exported model: pass the folder of a SavedModel, or the model that it was made from"
    ),
}
# Names in a folder that say what it has instead of a checkpoint.
_WEIGHTS = re.compile(r"((pytorch|tf|flax)_)?model\b.*\.(bin|h5|msgpack|gguf|tar\.gz)")


def find_source(path: str) -> Source:
    """Opens the model at a path: a file or folder in any of the formats that this package reads.

    The folder of a training run stands for its best checkpoint (`--eval_every`), or the newest.

    Raises:
        UserError: `path` is not a readable model; the message says what it is instead.
    """
    if files.is_dir(path):
        return _open_folder(path)
    openers = {
        ".safetensors": HuggingFaceSource,
        safetensors_files.INDEX_FILE: HuggingFaceSource,
        keras_files.MODEL_EXTENSION: KerasSource,
        keras_files.WEIGHTS_EXTENSION: KerasSource,
        ".zip": _open_zip,
    }
    for extension, opener in openers.items():
        if path.endswith(extension):
            if files.is_remote(path):
                advice = "copy it to a local disk; only TensorFlow checkpoints can be read remotely"
                raise UserError(advice, at=path)
            # Raises a clearer error for a missing file than the libraries do.
            with files.open_binary(path) as file:
                is_other = file.read(8).startswith((b"version ", b"<"))
            if not is_other:
                return opener(path)
    _reject_other(path)
    return _open_checkpoint(checkpoints.resolve(path))


def load_model(model_class: Any, path: str | os.PathLike, **kwargs: Any) -> Any:
    """Implements `ConfiguredModel.from_checkpoint`, which documents the arguments."""
    source = find_source(os.path.expanduser(os.fspath(path)))
    config = source.config()
    if config is None:
        raise UserError(
            f"No configuration next to {source.path}: put bert_config.json there, or create "
            "the model from a BertConfig and call bert_tf.checkpoint.restore(model, path)"
        )
    parameters = inspect.signature(model_class.__init__).parameters
    if "num_labels" in parameters and "num_labels" not in kwargs:
        if not source.labels:
            raise UserError(f"Pass num_labels: no labels.txt next to {source.path}")
        kwargs["num_labels"] = len(source.labels)
    model = model_class(config, zero_init_encoder=True, **kwargs)
    note(restore(model, source).describe())
    return model


def restore(model: keras.Model, source: str | os.PathLike | Source) -> Restored:
    """Assigns the values of a checkpoint to a model.

    As in the original BERT code, a head that is missing from the checkpoint keeps its initial
    values. The checkpoint's Adam slots and step are ignored, and so are variables that the model
    lacks. Unlike in the original, a checkpoint that lacks part of the encoder, or all variables of
    the model, raises an error before anything is assigned. Warns if configuration or head differ
    from the checkpoint's in ways that the shapes of variables do not show.

    Args:
        model: the model, changed in place.
        source: path of a model in any format that `convert_checkpoint.py` reads.

    Raises:
        UserError: the checkpoint does not fit the model, or cannot be read.
    """
    if not isinstance(source, Source):
        source = find_source(os.path.expanduser(os.fspath(source)))
    if isinstance(model, ConfiguredModel):
        source.warn_of_other_config(model.config, type(model).__name__)
    if source.head and source.head.has_labels and not isinstance(model, BertModel):
        classes = source.head.model, type(model)
        if not any(map(issubclass, classes, reversed(classes))):
            message = "%s has the head of a %s, not of a %s"
            log.warning(message, source.path, *(cls.__name__ for cls in classes))
    restored = load_weights(model, source, verify=False)
    if source.run:
        fold_target_scale(model, source.run)
    unused_heads = [name for name in restored.unused if name.endswith("output_weights")]
    if restored.new and set(unused_heads) - {"cls/seq_relationship/output_weights"}:
        warn(restored.describe())
    return restored


def _open_folder(folder: str) -> Source:
    find = RunFolder(folder).find
    if find(GRAPH_FILE):
        return open_saved_model(folder)
    if (encoder := encoder_folder(folder)) != folder:
        return find_source(encoder)
    weights_file = find(safetensors_files.WEIGHTS_FILE) or find(safetensors_files.INDEX_FILE)
    prefix = None
    try:
        prefix = RunFolder(folder).checkpoint(check=False)
    except UserError:
        if not weights_file:
            for name in filter(_WEIGHTS.fullmatch, files.list_dir(folder)):
                _reject_other(os.path.join(folder, name))
            raise
    if weights_file and prefix:
        models = " and ".join(map(os.path.basename, (weights_file, prefix)))
        raise UserError(f"{folder} contains two models, {models}: pass the path of one of them")
    return find_source(weights_file) if weights_file else _open_checkpoint(prefix or folder)


def _open_checkpoint(prefix: str) -> Source:
    try:
        is_object_based = open_reader(prefix).has_tensor(OBJECT_GRAPH)
    except UserError:
        # The reader for name-based checkpoints, which is used instead, will report the problem.
        is_object_based = False
    return ModelGardenSource(prefix) if is_object_based else OriginalSource(prefix)


def _open_zip(path: str) -> Source:
    folder = archives.unpack(path)
    try:
        return OriginalSource(checkpoints.resolve(folder), shown=path)
    except UserError as error:
        # Show the folder's name in the archive, not its temporary path, which is deleted at exit.
        raise UserError(f"{path}: {error}".replace(folder, os.path.basename(folder))) from error


def _reject_other(path: str) -> None:
    """Raises a UserError that says what an existing file is if it is not a checkpoint."""
    if files.is_dir(path) or not files.exists(path):
        return
    with files.open_binary(path) as file:
        beginning = file.read(64).lstrip()
    for signs, problem in _OTHER_FILES.items():
        for sign in signs:
            is_bytes = isinstance(sign, bytes)
            if beginning.startswith(sign) if is_bytes else path.lower().endswith(sign):
                raise UserError(f"{path} {problem}")
