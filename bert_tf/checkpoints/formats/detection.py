"""Finds the model at a path, and its format."""

import os

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats import archives, keras_files, model_garden, safetensors_files
from bert_tf.checkpoints.formats.hugging_face import HuggingFaceSource
from bert_tf.checkpoints.formats.keras_files import KerasSource
from bert_tf.checkpoints.formats.model_garden import ModelGardenSource
from bert_tf.checkpoints.formats.original import OriginalSource
from bert_tf.checkpoints.formats.saved_model import GRAPH_FILE, SavedModelSource
from bert_tf.checkpoints.formats.source import BEST_FOLDER, BEST_NAME, Source, existing
from bert_tf.errors import UserError

_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def find_source(path: str) -> Source:
    """Opens the model at a path, in any of the formats of this package.

    Raises:
        UserError: there is no readable model; the message says what is there instead.
    """
    if files.is_dir(path):
        return _in_folder(path)
    kinds = {
        ".safetensors": HuggingFaceSource,
        safetensors_files.INDEX: HuggingFaceSource,
        keras_files.WHOLE: KerasSource,
        keras_files.WEIGHTS: KerasSource,
        ".zip": _from_zip,
    }
    for ending, make in kinds.items():
        if path.endswith(ending):
            _require_local(path)
            # Explains a missing file better than the libraries do.
            files.open_binary(path).close()
            return make(path)
    _refuse_pickle(path)
    return _checkpoint(checkpoints.resolve(path))


def _in_folder(folder: str) -> Source:
    if existing(folder, GRAPH_FILE):
        return SavedModelSource(folder)
    single, index = safetensors_files.SINGLE, safetensors_files.INDEX
    tensors = existing(folder, single) or existing(folder, index)
    prefix = None
    try:
        prefix = checkpoints.resolve(folder)
    except UserError:
        if not tensors:
            if any(existing(folder, name) for name in _PICKLES):
                _refuse_pickle(os.path.join(folder, _PICKLES[0]))
            raise
    if tensors and prefix:
        both = " and ".join(map(os.path.basename, (tensors, prefix)))
        raise UserError(f"{folder} has two models, {both}: name one of them")
    if tensors:
        _require_local(folder)
        return HuggingFaceSource(tensors)
    source = _checkpoint(prefix or folder)
    best = os.path.join(folder, BEST_FOLDER, BEST_NAME)
    has_best = source.has_best and files.exists(f"{best}.index")
    if has_best and checkpoints.step_of(best) != checkpoints.step_of(source.path):
        note = f"The best of the evaluations is {best}: pass that to use it"
        source.notes.append(f"{source.path} is the newest checkpoint of {folder}. {note}")
    return source


def _checkpoint(prefix: str) -> Source:
    is_object_based = model_garden.is_object_based(prefix)
    return ModelGardenSource(prefix) if is_object_based else OriginalSource(prefix)


def _from_zip(path: str) -> Source:
    folder = archives.unpack(path)
    try:
        return OriginalSource(checkpoints.resolve(folder))
    except UserError as error:
        # The temporary folder will be gone when the user reads this.
        raise UserError(f"{path}: {error}".replace(folder, os.path.basename(folder))) from error


def _require_local(path: str) -> None:
    """Refuses remote paths, for formats whose libraries read local files only."""
    if files.is_remote(path):
        raise UserError(f"{path}: only TensorFlow checkpoints can be read remotely; copy it first")


def _refuse_pickle(path: str) -> None:
    """Refuses a file that can only be read by running code from it."""
    if path.endswith((".bin", ".pt", ".pth", ".pkl", ".pickle")):
        problem = f"{path} is a pickle: opening it would run code from it"
        advice = "from_pretrained(folder).save_pretrained(new_folder) of its class in transformers"
        raise UserError(f"{problem}. If you trust it, {advice} writes model.safetensors")
