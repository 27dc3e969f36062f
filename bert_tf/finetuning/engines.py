"""Opens a trained model for inference, with any engine.

For the engines onnx and litert, finds the model file, and exports it once if it is missing.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import note
from bert_tf.checkpoints.run_folder import LABELS, RunFolder, fingerprint
from bert_tf.data.features import Feature, texts_per_row
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.model_files import is_exported, require_exported_with
from bert_tf.finetuning.task import NO_SCHEMA, Schema
from bert_tf.inference.exported_model import MODEL_FILES, ExportedModel
from bert_tf.inference.row_batches import Fetch, RowBatches

# Suffixes of the files that an export depends on: labels and weights; and of exported models.
_SOURCES = (LABELS, ".index", ".safetensors", ".keras", ".h5", *MODEL_FILES.values())


def open_model(
    folder: RunFolder,
    get_model: Callable[[Any], Any],
    fetch: Fetch,
    features: Sequence[Feature],
    options: Any,
    batch_size: int,
    *,
    devices: Any = None,
    num_rows: int = 0,
    lengths: Any = None,
    schema: Schema = NO_SCHEMA,
    checkpoint: str | None = None,
    cache_suffix: str = "",
    one_thread: bool = False,
    grow: bool = True,
    **export: Any,
) -> RowBatches:
    """Opens a trained model, to run it over rows with `options.engine`.

    Args:
        folder: folder of the model, or of its export.
        get_model: (devices, or None on the CPU) -> the model with its weights; see `loaded`. Not
            called if there is an export.
        fetch: (outputs, batch) -> arrays [B, ...] to return.
        features: inputs of the model and of `fetch`.
        options: `engine`, `precision`, devices and `bert_config_file`.
        batch_size: number of rows in a batch.
        devices: the devices of a run; by default, those that `options` says, in one process.
        num_rows: number of rows to expect; 0 if unknown, as in a `Predictor`: XLA, if used, then
            compiles everything now.
        lengths: their `Lengths`, if known.
        schema: that of the task, for an export.
        checkpoint: the checkpoint of the model, if it is loaded; else `folder` stands for it.
        cache_suffix: the model is exported to the subfolder `<engine><cache_suffix>`.
        one_thread: see `training.open_devices`.
        grow: see `RowBatches`.
        export: further arguments of `export_folder`.

    Raises:
        UserError: an exported folder has a different precision, or the export fails.
    """
    if options.engine != "tensorflow":
        subfolder = options.engine + cache_suffix
        path = _exported_model(folder, subfolder, options, get_model, schema, checkpoint, **export)
        return ExportedModel(path, fetch, features, batch_size)
    from bert_tf import training

    with training.explained_errors():
        if devices is None:
            devices = training.open_devices(options, one_thread, one_process=True)
        lengths = lengths or training.Lengths(options.max_seq_length)
        num_texts = num_rows * texts_per_row(features)
        devices, model = training.for_inference(devices, num_texts, lengths), get_model(devices)
        compile_now = not num_rows
        return training.Inference(
            model, fetch, features, devices, batch_size, grow, compile_now=compile_now
        )


def loaded(build: Callable[..., Any], load: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Returns a function that builds a model on devices, and gives it its weights."""

    def get_model(devices: Any) -> Any:
        if devices is None:
            model = build(zero_init_encoder=True)
        else:
            from bert_tf import training

            model = training.build_model(build, devices, zero_init_encoder=True)
        load(model)
        return model

    return get_model


def _exported_model(
    folder: RunFolder,
    subfolder: str,
    options: Any,
    get_model: Callable[[Any], Any],
    schema: Schema,
    checkpoint: str | None,
    **kwargs: Any,
) -> str:
    """Returns the path of the exported model in a folder, or in `subfolder`, which it may write.

    The latter is reused while checkpoint, configuration and precision are the same.
    """
    engine, precision, path = options.engine, options.precision, folder.path or "."
    if is_exported(path, engine):
        exported = os.path.join(path, MODEL_FILES[engine])
        exported_precision = folder.entry("precision") or precision
        require_exported_with(exported, "precision", exported_precision, precision)
        return exported
    cache = RunFolder(os.path.join(path, subfolder))
    prefix = checkpoint or folder.model or folder.checkpoint(check=False)
    entries = {"precision": precision, "checkpoint_id": checkpoint_id(path, prefix, options)}
    model_file = cache.file(MODEL_FILES[engine])
    if {n: cache.entry(n) for n in entries} != entries or not files.exists(model_file):
        from bert_tf.saved_models.exported_folder import export_folder  # imports TensorFlow

        note(f"Exporting the model to {model_file}")
        contents = run_metadata.model_files(options, schema, **entries)
        kwargs |= {"format": engine, "precision": precision}
        export_folder(get_model(None), options, cache.path, contents, schema.labels, **kwargs)
    elif not checkpoint:
        folder.log_progress()
    return model_file


def checkpoint_id(folder: str, checkpoint: str, options: Any) -> str:
    """Returns a digest of a checkpoint's name, files (size and time) and configuration."""
    sources = []
    for subfolder in (folder, os.path.dirname(checkpoint) or "."):
        for name in sorted(files.list_dir(subfolder)):
            if name.endswith(_SOURCES):
                sources.append((name, *files.size_and_mtime(os.path.join(subfolder, name))))
    config = files.read_text(options.bert_config_file)
    return fingerprint((os.path.basename(checkpoint), sources, config))
