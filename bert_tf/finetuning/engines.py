"""The model behind the engines onnx and litert: an exported folder, or a cached export."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.model_files import find_model_files
from bert_tf.finetuning.record_cache import fingerprint
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.progress import log

# Entries of `run.json` in an exported folder.
PRECISION, CHECKPOINT = "precision", "checkpoint_id"
# Extensions of weights: the original's, Hugging Face's and Keras'.
_WEIGHTS = (".index", ".safetensors", ".keras", ".h5")


def is_exported(folder: str, engine: str) -> bool:
    """Returns whether a folder contains an exported model for an engine.

    Raises:
        UserError: it contains a model for another engine.
    """
    others = [name for name in MODEL_FILES if files.exists(os.path.join(folder, MODEL_FILES[name]))]
    if others and engine not in others:
        raise UserError(
            f"{folder} was exported for the engine {others[0]}: pass engine={others[0]}"
        )
    return bool(others)


def add_model_files(options: Any, folder: str) -> Any:
    """Returns options with the configuration and vocabulary of an exported or other folder.

    Raises:
        UserError: `do_lower_case` differs from that of an export, or files are missing.
    """
    if options.engine == "tensorflow" or not is_exported(folder, options.engine):
        return find_model_files(options)
    exported = run_metadata.read_run(folder)[1].get("do_lower_case", options.do_lower_case)
    if exported != options.do_lower_case:
        value = str(exported).lower()
        raise UserError(f"{folder} was exported with do_lower_case={value}: pass this value")
    flags = {"bert_config_file": run_metadata.CONFIG, "vocab_file": run_metadata.VOCAB}
    paths = {flag: os.path.join(folder, name) for flag, name in flags.items()}
    return dataclasses.replace(options, init_checkpoint=None, **paths)


def find_exported_model(
    folder: str,
    options: Any,
    checkpoint: str,
    export: Callable[[str, dict[str, str]], Any],
    cache_suffix: str = "",
) -> str:
    """Returns the path of a model file for `options.engine`, and exports the model if necessary.

    Args:
        folder: an exported folder, or the folder of the checkpoint, which is then exported to a
            subfolder unless that has the same checkpoint, configuration and precision.
        options: `engine`, `precision` and `bert_config_file` of the model.
        checkpoint: the checkpoint to export.
        export: (export_dir, entries of `run.json`) -> None; exports the model.
        cache_suffix: added to the name of the subfolder, which is the engine's.

    Raises:
        UserError: an exported folder has a different precision, or the export fails.
    """
    engine, precision = options.engine, options.precision
    if is_exported(folder, engine):
        exported = os.path.join(folder, MODEL_FILES[engine])
        available = run_metadata.read_run_string(folder, PRECISION) or precision
        if available != precision:
            raise UserError(
                f"{exported} is {available}, not {precision}: pass precision={available}, or "
                "export the model again with --precision"
            )
        return exported
    cache = os.path.join(folder, engine + cache_suffix)
    entries = {PRECISION: precision, CHECKPOINT: _checkpoint_id(folder, checkpoint, options)}
    cached = {name: run_metadata.read_run_string(cache, name) for name in entries}
    path = os.path.join(cache, MODEL_FILES[engine])
    if cached != entries or not files.exists(path):
        log.info("Exporting the model to %s", path)
        export(cache, entries)
    return path


def _checkpoint_id(folder: str, checkpoint: str, options: Any) -> str:
    """Identifies a checkpoint by its name and the weights in its folder, without reading them."""
    weights = []
    for subfolder in (folder, os.path.dirname(checkpoint)):
        for name in sorted(files.list_dir(subfolder)):
            if name.endswith(_WEIGHTS):
                weights.append((name, *files.size_and_mtime(os.path.join(subfolder, name))))
    config = files.read_text(options.bert_config_file)
    return fingerprint((os.path.basename(checkpoint), weights, config))
