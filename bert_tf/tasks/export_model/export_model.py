"""Exports the model of a folder as a SavedModel or to ONNX, for `export_model.py`."""

import os
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf import checkpoints, files, registry
from bert_tf.checkpoints.formats import find_source, lowers_by_vocabulary
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.export import export_task, export_to_onnx, log_version, new_version
from bert_tf.finetuning.initialization import restore_trained
from bert_tf.finetuning.model_files import load_config_and_tokenizer
from bert_tf.modeling import BertModel
from bert_tf.saved_models import modules
from bert_tf.tasks.export_model.options import ExportOptions

_USUAL_LENGTH = 128
# Flags of no use for an encoder or a preprocessor.
_OF_TASKS = ("task_name", "text_pairs", "text_input", "ids_model", "jit_compile")


def run(options: ExportOptions) -> str:
    """Exports a model, and returns its folder: `export_dir`, or a new version in it."""
    options.check()
    folder = options.model_dir or ""
    _require_model_folder(folder)
    keras.config.set_dtype_policy("float32")
    script = options.script or run_metadata.read_run(folder)[0]
    is_task = bool(script in registry.SCRIPTS and registry.SCRIPTS[script].make_task)
    if options.form == "task" or (options.form == "auto" and is_task):
        return _export_fine_tuned(options, folder, script)
    return _export_encoder(options, folder)


def _export_fine_tuned(options: ExportOptions, folder: str, script: str | None) -> str:
    flags: dict[str, Any] = {"task_name": options.task_name} if options.task_name else {}
    if flags and script not in (None, "run_classifier"):
        raise UserError(f"--task_name is for run_classifier, and {folder} was trained by {script}")
    of_task = run_metadata.read_options(folder, script, **flags, **_flags(options))
    make_task = registry.SCRIPTS[registry.script_of(type(of_task))].make_task
    if not make_task:
        problem = f"{folder} was trained by {script}"
        raise UserError(f"--form=task needs a model that was fine-tuned, and {problem}")
    if options.pooling != "none":
        raise UserError("--pooling is for encoders: pass --form=encoder")
    of_task.check_model()
    task = registry.load(make_task)(of_task, *load_config_and_tokenizer(of_task))
    model = task.build_model()
    restore_trained(model, folder)
    if options.format == "onnx":
        return _export_onnx(options, model, task.options, task.labels)
    export_dir = options.export_dir or ""
    pairs = {"auto": None, "true": True, "false": False}[options.text_pairs]
    same = {name: getattr(options, name) for name in ("text_input", "ids_model", "jit_compile")}
    return export_task(task, model, task.options, export_dir, text_pairs=pairs, **same)


def _export_encoder(options: ExportOptions, folder: str) -> str:
    flags = {"max_seq_length": _USUAL_LENGTH, **_flags(options)}
    of_encoder = run_metadata.read_options(folder, "extract_features", **flags)
    of_encoder.check_model()
    for name in _OF_TASKS:
        if getattr(options, name) != getattr(ExportOptions(), name):
            raise UserError(f"--{name} is for fine-tuned models, not for --form={options.form}")
    config, tokenizer = load_config_and_tokenizer(of_encoder)
    export_dir = options.export_dir or ""
    model = None if options.form == "preprocessor" else _encoder(options, folder, config)
    if options.format == "onnx":
        return _export_onnx(options, model, of_encoder)
    with new_version(export_dir, run_metadata.model_files(of_encoder)) as (path, assets):
        if model is None:
            length = of_encoder.max_seq_length
            module = modules.PreprocessorModule(tokenizer, assets["vocab"], length)
            modules.save(module, path, {"serving_default": module.__call__})
        else:
            module = modules.EncoderModule(model, assets["vocab"], of_encoder.do_lower_case)
            modules.save(module, path, {"serving_default": module.signature()})
    return log_version(export_dir)


def _encoder(options: ExportOptions, folder: str, config: BertConfig) -> BertModel:
    """Restores the encoder of a folder; refuses a fine-tuned model of an unknown task."""
    model = BertModel(config)
    prefix = run_metadata.best_prefix(folder) or checkpoints.resolve(folder)
    restored = checkpoints.restore(model, prefix)
    weights = [name for name in restored.unused if name.endswith("output_weights")]
    heads = [name for name in weights if not name.startswith("cls/seq_relationship/")]
    if heads and options.form == "auto":
        kind = f"a fine-tuned model ({heads[0]}), and {folder} does not say what for"
        advice = "pass --form=task with --script and --task_name, or --form=encoder"
        raise UserError(f"{prefix} is {kind}: {advice}")
    return model


def _export_onnx(
    options: ExportOptions, model: Any, of_model: Any, labels: Sequence[str] = ()
) -> str:
    return export_to_onnx(
        model,
        of_model,
        options.export_dir or "",
        {"precision": options.precision},
        labels,
        pooling=None if options.pooling == "none" else options.pooling,
    )


def _flags(options: ExportOptions) -> dict[str, Any]:
    """Flags that replace those of the training."""
    folder, length = options.model_dir or "", options.max_seq_length
    lower: bool | None = options.do_lower_case == "true"
    if options.do_lower_case == "auto":
        lower = find_source(folder).do_lower_case
        if lower is None:
            lower = lowers_by_vocabulary(os.path.join(folder, run_metadata.VOCAB))
    return {"do_lower_case": lower, **({"max_seq_length": length} if length else {})}


def _require_model_folder(folder: str) -> None:
    """Refuses what is not a folder with the original's files."""
    names = (run_metadata.CONFIG, run_metadata.VOCAB)
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        if not (files.is_dir if path == folder else files.exists)(path):
            problem = f"{path} is not a folder" if path == folder else f"No such file: {path}"
            advice = "--model_dir takes a training or a release; convert_checkpoint.py for others"
            raise UserError(f"{problem} ({files.describe_absence(path)}): {advice}")
