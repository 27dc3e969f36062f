"""Finds the model file for the engines onnx and litert; exports it once if it is missing."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf import files
from bert_tf.checkpoints.formats.source import LABELS_FILE, find_file
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.model_files import find_model_files
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.progress import log

# How the names of the files end that an export depends on: labels and weights.
_SOURCES = (LABELS_FILE, ".index", ".safetensors", ".keras", ".h5")


def is_exported(folder: str, engine: str) -> bool:
    """Returns whether a folder has an export for an engine; UserError if only for others."""
    engines = [name for name, file in MODEL_FILES.items() if find_file(folder, file)]
    if engines and engine not in engines:
        advice = f"pass engine={engines[0]}"
        raise UserError(f"{folder} was exported for the engine {engines[0]}: {advice}")
    return bool(engines)


def with_model_files(options: Any, folder: str) -> Any:
    """Fills in the model files of `folder` if it is exported; otherwise calls `find_model_files`.

    Raises a UserError if files are missing, or if files or casing differ from the exported model's.
    """
    if options.engine == "tensorflow" or not is_exported(folder, options.engine):
        return find_model_files(options)
    exported = run_metadata.read_run(folder)[1].get("do_lower_case", options.do_lower_case)
    if exported != options.do_lower_case:
        setting = f"do_lower_case={str(exported).lower()}"
        raise UserError(f"{folder} was exported with {setting}: pass {setting}")
    flags = {"bert_config_file": run_metadata.CONFIG, "vocab_file": run_metadata.VOCAB}
    paths = {flag: os.path.join(folder, name) for flag, name in flags.items()}
    for flag, path in paths.items():
        other = getattr(options, flag) or path
        if files.read_text(other).rstrip() != files.read_text(path).rstrip():
            raise UserError(f"{folder} was exported with {path}, not {flag}={other}: omit {flag}")
    return dataclasses.replace(options, init_checkpoint=None, **paths)


def find_exported_model(
    folder: str,
    options: Any,
    checkpoint: str,
    load_model: Callable[[], Any],
    labels: Sequence[str] = (),
    cache_suffix: str = "",
    **kwargs: Any,
) -> str:
    """Returns the path of a model file for `options.engine`, and exports the model if necessary.

    Args:
        folder: an exported folder, or the folder of the checkpoint. In the latter case, the export
            is written to a subfolder, and reused while checkpoint, configuration and precision are
            the same.
        options: `engine`, `precision` and `bert_config_file` of the model.
        checkpoint: the checkpoint to export.
        load_model: returns the model with the weights of the checkpoint.
        labels: names of the model's labels, in the order of its outputs.
        cache_suffix: the subfolder is named `<engine><cache_suffix>`.
        kwargs: further arguments of `export_folder`.

    Raises:
        UserError: an exported folder has a different precision, or the export fails.
    """
    engine, precision, folder = options.engine, options.precision, folder or "."
    if is_exported(folder, engine):
        exported = os.path.join(folder, MODEL_FILES[engine])
        exported_precision = run_metadata.read_run_string(folder, "precision") or precision
        if exported_precision != precision:
            raise UserError(
                f"{exported} is {exported_precision}, not {precision}: pass "
                f"precision={exported_precision}, or export it with --precision={precision}"
            )
        return exported
    cache = os.path.join(folder, engine + cache_suffix)
    entries = {"precision": precision, "checkpoint_id": _checkpoint_id(folder, checkpoint, options)}
    cached = {name: run_metadata.read_run_string(cache, name) for name in entries}
    path = os.path.join(cache, MODEL_FILES[engine])
    if cached != entries or not files.exists(path):
        if not files.is_remote(folder) and not os.access(folder, os.W_OK):
            advice = f"Run export_model.py --format={engine}, and load its --export_dir"
            raise UserError(f"Cannot export the model to {path}: {folder} is read-only. {advice}")
        from bert_tf.saved_models.exported_folder import export_folder  # imports TensorFlow

        log.info("Exporting the model to %s", path)
        contents = run_metadata.model_files(options, labels, **entries)
        kwargs |= {"format": engine, "precision": precision}
        export_folder(load_model(), options, cache, contents, labels, **kwargs)
    return path


def _checkpoint_id(folder: str, checkpoint: str, options: Any) -> str:
    """Returns a digest of a checkpoint's name, files (size and time) and configuration."""
    sources = []
    for subfolder in (folder, os.path.dirname(checkpoint) or "."):
        for name in sorted(files.list_dir(subfolder)):
            if name.endswith(_SOURCES):
                sources.append((name, *files.size_and_mtime(os.path.join(subfolder, name))))
    config = files.read_text(options.bert_config_file)
    return run_metadata.fingerprint((os.path.basename(checkpoint), sources, config))
