"""The ONNX model that `engine="onnx"` computes with: one that was exported, or is exported now."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.progress import log

MODEL = "model.onnx"
# Folder of the exported model next to the checkpoints that it was made from.
ONNX_FOLDER = "onnx"
# Entries of its `run.json`.
PRECISION, CHECKPOINT = "precision", "checkpoint_id"


def find_onnx_model(
    folder: str,
    precision: str,
    export: Callable[[str, dict[str, str]], Any],
    cache_name: str = ONNX_FOLDER,
) -> str:
    """Returns the path of `model.onnx` for a folder, and exports the model if necessary.

    Args:
        folder: an exported folder, or one with a checkpoint, which is exported to a folder in it
            unless that holds an export of the same checkpoint and precision.
        precision: "float32" or "int8".
        export: (export_dir, entries of `run.json`) -> None; exports the model.
        cache_name: name of the folder to export to.

    Raises:
        UserError: an exported folder has a different precision, there is neither an export nor a
            checkpoint, or the export fails.
    """
    exported = os.path.join(folder, MODEL)
    if files.exists(exported):
        available = run_metadata.read_run_string(folder, PRECISION) or precision
        if available != precision:
            raise UserError(
                f"{exported} is {available}, not {precision}: pass precision={available}, or "
                "export the model again with --precision"
            )
        return exported
    cache = os.path.join(folder, cache_name)
    entries = {PRECISION: precision, CHECKPOINT: _checkpoint_id(folder)}
    current = {name: run_metadata.read_run_string(cache, name) for name in entries}
    path = os.path.join(cache, MODEL)
    if current != entries or not files.exists(path):
        log.info("Exporting the model to %s", path)
        export(cache, entries)
    return path


def exported_files(folder: str) -> dict[str, Any]:
    """Returns the flags that name the files of an exported folder; empty for other folders."""
    if not files.exists(os.path.join(folder, MODEL)):
        return {}
    names = {"bert_config_file": run_metadata.CONFIG, "vocab_file": run_metadata.VOCAB}
    return {flag: os.path.join(folder, name) for flag, name in names.items()}


def _checkpoint_id(folder: str) -> str:
    """Identifies the checkpoints in a folder without reading them, which would need TensorFlow."""
    found = []
    for place in (folder, os.path.join(folder, "best")):
        for name in sorted(files.list_dir(place)):
            if name.endswith((".index", ".safetensors", ".keras")):
                with contextlib.suppress(UserError):
                    size, time = files.size_and_mtime(os.path.join(place, name))
                    found.append(f"{name}:{size}:{time}")
    if not found:
        raise UserError(f"{folder} has neither {MODEL} nor a checkpoint")
    return " ".join(found)
