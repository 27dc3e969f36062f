"""Implements the script `export_model.py`: exports to a SavedModel, to ONNX or to LiteRT."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from bert_tf import checkpoints
from bert_tf.base.errors import UserError, warn
from bert_tf.checkpoints.formats import find_source, guess_lower_case
from bert_tf.checkpoints.model import fold_target_scale
from bert_tf.checkpoints.run_folder import TARGET_SCALE, VOCAB, RunFolder
from bert_tf.commands.options import ExportOptions
from bert_tf.config import BertConfig
from bert_tf.data.features import Feature
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.encoder import warn_of_other_vectors
from bert_tf.finetuning.export import export_task, new_version
from bert_tf.finetuning.model_files import load_config_and_tokenizer
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.modeling import BertModel
from bert_tf.options import registry
from bert_tf.saved_models import modules
from bert_tf.saved_models.exported_folder import export_folder
from bert_tf.training.precision import dtype_policy


def run(options: ExportOptions) -> str:
    """Exports a model; returns `export_dir` or, for a SavedModel, the numbered subfolder."""
    options.check()
    folder = options.model_dir or ""
    RunFolder(folder).require_one_run()
    script = options.script or RunFolder(folder).script
    entry = registry.entries().get(script or "")
    is_task = bool(entry and entry.make_task)
    with dtype_policy():
        if options.form == "task" or (options.form == "auto" and is_task):
            return _export_fine_tuned(options, folder, script, entry)
        return _export_encoder(options, folder)


def _export_fine_tuned(options: ExportOptions, folder: str, script: str | None, entry: Any) -> str:
    task_flag = {"task_name": options.task_name} if options.task_name else {}
    if entry and not entry.make_task:
        raise UserError(f"--form=task needs a fine-tuned model, not one of {script}", at=folder)
    # Raises a UserError if the script is unknown.
    flags = {**task_flag, **_overrides(options)}
    task_options = run_metadata.options_for_model(folder, script, **flags)
    options.require_defaults("pooling", used_for="fine-tuned models")
    task_options.check_model()
    trained, used = RunFolder(folder).flags.get("max_seq_length"), task_options.max_seq_length
    if trained not in (None, used):
        warn(f"trained with --max_seq_length={trained}, not {used}", at=folder)
    export_dir, make_task = options.export_dir or "", registry.load(entry.make_task)
    files_of_model = load_config_and_tokenizer(task_options, [find_source(folder)])
    task = give_schema(make_task(task_options, *files_of_model))
    model = task.build_model(zero_init_encoder=True)
    loaded = checkpoints.load_weights(model, RunFolder(folder).checkpoint())
    loaded.require_exact(". Fine-tune the model for this task first, or pass --form=encoder")
    if options.format != "saved_model":
        _check_ranks(model, task.features("predict"))
        settings: Any = {"format": options.format, "precision": options.precision}
        fold_target_scale(model, RunFolder(folder))
        entries = {n: v for n, v in task.schema.entries.items() if n != TARGET_SCALE}
        schema = dataclasses.replace(task.schema, entries=entries)
        contents = run_metadata.model_files(task.options, schema, precision=options.precision)
        labels = task.schema.labels
        return export_folder(model, task.options, export_dir, contents, labels, **settings)
    settings = {"text_input": options.text_input, "jit_compile": options.jit_compile}
    return export_task(task, model, task.options, export_dir, **settings)


def _check_ranks(model: Any, features: Sequence[Feature]) -> None:
    """Raises a UserError if inputs differ in rank, which only a SavedModel supports."""
    ranks = {f.name: len(f.shape) + 1 for f in features if f.name in model.input_names}
    for name, rank in ranks.items():
        if rank != model.input_rank:
            problem = f"the input {name} has {rank} dimensions, not input_rank={model.input_rank}"
            raise UserError(f"{type(model).__name__}: {problem}", fix="Pass --format=saved_model")


def _export_encoder(options: ExportOptions, folder: str) -> str:
    overrides = _overrides(options)
    encoder_options = run_metadata.options_for_model(folder, "extract_features", **overrides)
    encoder_options.check_model()
    task_flags = ("script", "task_name", "text_input", "jit_compile")
    options.require_defaults(*task_flags, used_for="encoders")
    config, tokenizer = load_config_and_tokenizer(encoder_options, [find_source(folder)])
    export_dir = options.export_dir or ""
    model = None if options.form == "preprocessor" else _restore_encoder(options, folder, config)
    if options.format != "saved_model":
        pooling = None if options.pooling == "none" else options.pooling
        warn_of_other_vectors(RunFolder(folder), options.pooling)
        settings = {"format": options.format, "precision": options.precision, "pooling": pooling}
        contents = run_metadata.model_files(encoder_options, precision=options.precision)
        return export_folder(model, encoder_options, export_dir, contents, **settings)
    contents = run_metadata.model_files(encoder_options)
    with new_version(export_dir, contents) as (path, assets, version):
        if model is None:
            length = encoder_options.max_seq_length
            modules.save_preprocessor(path, tokenizer, assets["vocab"], length)
        else:
            modules.save_encoder(path, model, assets["vocab"], encoder_options.do_lower_case)
    return version


def _restore_encoder(options: ExportOptions, folder: str, config: BertConfig) -> BertModel:
    """Restores the encoder. With `--form=auto`, raises a UserError for a fine-tuned head."""
    model = BertModel(config, zero_init_encoder=True)
    prefix = RunFolder(folder).checkpoint()
    restored = checkpoints.load_weights(model, prefix)
    head_weights = [name for name in restored.unused if name.endswith("output_weights")]
    # The next-sentence head is that of pre-training, not of a fine-tuned model.
    heads = [name for name in head_weights if not name.startswith("cls/seq_relationship/")]
    if heads and options.form == "auto":
        advice = "Pass --form=task with --script and --task_name, or --form=encoder"
        raise UserError(f"a model of an unknown task, with {heads[0]}", at=prefix, fix=advice)
    return model


def _overrides(options: ExportOptions) -> dict[str, Any]:
    """Returns the flags that take precedence over the flags of the training run."""
    folder, length = options.model_dir or "", options.max_seq_length
    do_lower_case: bool | None = options.do_lower_case == "true"
    if options.do_lower_case == "auto":
        do_lower_case = find_source(folder).do_lower_case
        if do_lower_case is None:
            do_lower_case = guess_lower_case(os.path.join(folder, VOCAB))
    return {"do_lower_case": do_lower_case, **({"max_seq_length": length} if length else {})}
