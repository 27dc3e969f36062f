"""Detects the format of the model at a path, and opens it."""

import functools
import inspect
import os
import re
import shutil
import zipfile
import zlib
from typing import Any

import keras

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, note, reason, shortened, warn
from bert_tf.checkpoints.formats import keras_files
from bert_tf.checkpoints.formats.hugging_face import WEIGHTS_FILES, HuggingFaceSource
from bert_tf.checkpoints.formats.keras_files import KerasSource
from bert_tf.checkpoints.formats.matching import check_config
from bert_tf.checkpoints.formats.model_garden import ModelGardenSource
from bert_tf.checkpoints.formats.saved_model import GRAPH_FILE, open_saved_model
from bert_tf.checkpoints.formats.sentence_transformers import encoder_folder
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.model import Restored, fold_target_scale, load_weights
from bert_tf.checkpoints.run_folder import CONFIG, VOCAB, RunFolder
from bert_tf.checkpoints.tensors import OBJECT_GRAPH, open_reader, temporary_folder
from bert_tf.modeling import BertModel
from bert_tf.modeling.configured_model import ConfiguredModel

# Other files that people have: endings of their names, or their first bytes -> what to do.
_OTHER_FILES: dict[tuple[str | bytes, ...], str] = {
    (b"version https://git-lfs", b"<!DOCTYPE", b"<!doctype", b"<html"): (
        "a pointer of Git LFS or a web page: run git lfs pull, or download the file itself"
    ),
    (".bin", ".pt", ".pth", ".pkl", ".pickle", "pytorch_model.bin.index.json"): (
        "a pickle, which can run arbitrary code when it is loaded. If you trust it, convert it "
        "with transformers: BertModel.from_pretrained(folder).save_pretrained(new_folder)"
    ),
    (".hdf5", b"\x89HDF", ".msgpack"): "weights of Flax, or HDF5 in a file not named .h5",
}
# Names in a folder that say what it has instead of a checkpoint.
_WEIGHTS = re.compile(r"((pytorch|flax)_)?model\b.*\.(bin|msgpack)")


# What to unpack of a release: a zip of a folder with bert_config.json, vocab.txt and a checkpoint.
# macOS adds metadata files `__MACOSX/...` and `._*`, which are excluded.
_MEMBER_NAME = re.compile(
    rf"(?!__MACOSX/)(.*/)?({re.escape(CONFIG)}|{re.escape(VOCAB)}|"
    r"(?!\._)[^/]*\.ckpt(-\d+)?\.(index|meta|data-\d{5}-of-\d{5}))"
)
# Weights hardly compress, so a higher ratio indicates a zip bomb, unless the content is small.
_MAX_COMPRESSION_RATIO = 20
_ALWAYS_ALLOWED_BYTES = 1 << 28


def find_source(path: str) -> Source:
    """Opens the model at a path: a file or folder in any of the formats that this package reads.

    The folder of a training run stands for its best checkpoint (`--eval_every`), or the newest.

    Raises:
        UserError: `path` is not a readable model; the message says what it is instead.
    """
    if files.is_dir(path):
        return _open_folder(path)
    openers = {
        keras_files.MODEL_EXTENSION: KerasSource,
        keras_files.WEIGHTS_EXTENSION: KerasSource,
        **dict.fromkeys((".safetensors", ".h5", *WEIGHTS_FILES), HuggingFaceSource),
        ".zip": lambda path: OriginalSource(checkpoints.resolve(_unpack(path)), shown=path),
    }
    for extension, opener in openers.items():
        if path.endswith(extension):
            if files.is_remote(path):
                raise UserError("only TensorFlow checkpoints can be read remotely", at=path)
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
        raise UserError(f"No {CONFIG} next to {source.path}")
    parameters = inspect.signature(model_class.__init__).parameters
    if "num_labels" in parameters and "num_labels" not in kwargs:
        if not source.labels:
            raise UserError(f"No labels.txt next to {source.path}: pass num_labels")
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
        check_config(model.config, type(model).__name__, source)
    if source.head and source.head.has_labels and not isinstance(model, BertModel):
        classes = source.head.model, type(model)
        if not any(map(issubclass, classes, reversed(classes))):
            names = [cls.__name__ for cls in classes]
            warn(f"the head of a {names[0]}, not of a {names[1]}", at=source.path)
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
    weights_file = next(filter(None, map(find, WEIGHTS_FILES)), None)
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
        raise UserError(f"two models, {models}: pass the path of one", at=folder)
    return find_source(weights_file) if weights_file else _open_checkpoint(prefix or folder)


def _open_checkpoint(prefix: str) -> Source:
    try:
        is_object_based = open_reader(prefix).has_tensor(OBJECT_GRAPH)
    except UserError:
        # The reader for name-based checkpoints, which is used instead, will report the problem.
        is_object_based = False
    return ModelGardenSource(prefix) if is_object_based else OriginalSource(prefix)


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
                raise UserError(problem, at=path)


@functools.lru_cache
def _unpack(path: str) -> str:
    """Unpacks checkpoint, configuration and vocabulary into a new folder, and returns its path.

    The folder is removed at exit. Members are written as regular files under their base names, so
    neither links nor paths such as `../vocab.txt` lead outside the folder.
    """
    try:
        with files.wrap_errors("unpack", path), zipfile.ZipFile(path) as archive:
            members = _select_members(path, archive)
            # Keep the name of the folder in the zip file, by which `releases` knows the model.
            folder_name = os.path.basename(os.path.dirname(next(iter(members.values())).filename))
            folder_name = folder_name or os.path.basename(path).removesuffix(".zip") or "model"
            folder = os.path.join(temporary_folder(), folder_name)
            files.make_dirs(folder)
            for name, member in members.items():
                target = files.open_atomically(os.path.join(folder, name))
                with archive.open(member) as source, target as file:
                    shutil.copyfileobj(source, file, 1 << 22)
    # RuntimeError: it is encrypted, or has an unknown compression.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(f"cannot be unpacked: {reason(error)}", at=path) from error
    return folder


def _select_members(path: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Returns the archive members to unpack, by base name; raises a UserError for bad archives."""
    expected = [member for member in archive.infolist() if _MEMBER_NAME.fullmatch(member.filename)]
    paths = [os.path.split(member.filename) for member in expected]
    folders = {folder for folder, name in paths if ".ckpt" in name}
    if len(folders) != 1:
        content = shortened(archive.namelist(), 8) or "nothing"
        raise UserError(f"not one original BERT checkpoint. It contains: {content}", at=path)
    selected = [member for member in expected if os.path.dirname(member.filename) in folders]
    size = sum(member.file_size for member in selected)
    packed_size = os.path.getsize(path)
    if size > max(_ALWAYS_ALLOWED_BYTES, _MAX_COMPRESSION_RATIO * packed_size):
        raise UserError(f"its {packed_size:,} bytes would unpack to {size:,}", at=path)
    return {os.path.basename(member.filename): member for member in selected}
