"""The ONNX model behind `engine="onnx"`: an exported folder, or a cached export of a checkpoint."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.record_cache import fingerprint
from bert_tf.inference.onnx_engine import MODEL
from bert_tf.progress import log

# Folder of the cached export, next to the checkpoint.
ONNX_FOLDER = "onnx"
# Entries of `run.json` in an exported folder.
PRECISION, CHECKPOINT = "precision", "checkpoint_id"
# Extensions of weights: the original's, Hugging Face's and Keras'.
_WEIGHTS = (".index", ".safetensors", ".keras", ".h5")


def is_exported(folder: str) -> bool:
    """Returns whether a folder contains an exported ONNX model."""
    return files.exists(os.path.join(folder, MODEL))


def use_exported_files(options: Any, folder: str) -> Any:
    """Returns options that read configuration and vocabulary from an exported folder.

    Raises:
        UserError: `do_lower_case` differs from that of the export.
    """
    exported = run_metadata.read_run(folder)[1].get("do_lower_case", options.do_lower_case)
    if exported != options.do_lower_case:
        value = str(exported).lower()
        raise UserError(f"{folder} was exported with do_lower_case={value}: pass this value")
    flags = {"bert_config_file": run_metadata.CONFIG, "vocab_file": run_metadata.VOCAB}
    paths = {flag: os.path.join(folder, name) for flag, name in flags.items()}
    return dataclasses.replace(options, init_checkpoint=None, **paths)


def find_onnx_model(
    folder: str,
    options: Any,
    checkpoint: str,
    export: Callable[[str, dict[str, str]], Any],
    cache_name: str = ONNX_FOLDER,
) -> str:
    """Returns the path of a `model.onnx`, and exports the model if necessary.

    Args:
        folder: an exported folder, or the folder of the checkpoint, which is then exported to a
            subfolder unless that has the same checkpoint, configuration and precision.
        options: `precision` and `bert_config_file` of the model.
        checkpoint: the checkpoint to export.
        export: (export_dir, entries of `run.json`) -> None; exports the model.
        cache_name: name of the subfolder.

    Raises:
        UserError: an exported folder has a different precision, or the export fails.
    """
    precision, exported = options.precision, os.path.join(folder, MODEL)
    if is_exported(folder):
        available = run_metadata.read_run_string(folder, PRECISION) or precision
        if available != precision:
            raise UserError(
                f"{exported} is {available}, not {precision}: pass precision={available}, or "
                "export the model again with --precision"
            )
        return exported
    cache = os.path.join(folder, cache_name)
    entries = {PRECISION: precision, CHECKPOINT: _checkpoint_id(folder, checkpoint, options)}
    cached = {name: run_metadata.read_run_string(cache, name) for name in entries}
    path = os.path.join(cache, MODEL)
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
