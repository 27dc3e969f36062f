"""Files that training saves next to its checkpoints, and that loading the model requires.

These are copies of `bert_config.json` and `vocab.txt`; `run.json` with the script and its flags;
and `labels.txt` with the names of the outputs.
"""

import dataclasses
import functools
import json
import os
import typing
from typing import Any

from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError, shortened, warn
from bert_tf.base.foreign_names import similar, use_instead
from bert_tf.checkpoints.folder import advice_for_model_id
from bert_tf.checkpoints.run_folder import (
    CONFIG,
    ENDED,
    RUN,
    VOCAB,
    RunFolder,
    fingerprint,
    labels_file,
)
from bert_tf.finetuning.task import NO_SCHEMA, Schema
from bert_tf.options import declare, registry
from bert_tf.options.declare import DATA, DEVICES, MODEL, check_type

# Name of the copy -> flag with the path of the file.
COPIES = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}


def run_files(
    options: Any, data_description: str, schema: Schema = NO_SCHEMA, **extra: Any
) -> dict[str, str]:
    """Returns file name -> text for a training run; raises a UserError if a saved copy differs."""
    folder = RunFolder(options.output_dir)
    resumes = folder.will_be_resumed_by(options)
    begun_from = folder.entry("begun_from") if resumes else options.init_checkpoint
    extra |= {"begun_from": begun_from, "training_data": data_description, ENDED: False}
    contents = model_files(options, schema, **extra)
    for name, flag in COPIES.items():
        if name in contents:
            folder.require_same({name: contents[name]}, f"--{flag}={getattr(options, flag)}")
    return {**contents, **schema.files}


def model_files(options: Any, schema: Schema = NO_SCHEMA, **extra: Any) -> dict[str, str]:
    """Returns file name -> text for configuration, vocabulary, `labels.txt` if any, and `run.json`.

    `extra` has entries for `run.json` in addition to those of the schema.
    """
    run = {"script": registry.script_of(type(options)), "flags": dataclasses.asdict(options)}
    copies = {
        name: files.read_text(getattr(options, flag)) + "\n"
        for name, flag in COPIES.items()
        if hasattr(options, flag)
    }
    contents = {**labels_file(schema.labels), **copies}
    run["digests"] = {name: fingerprint(text.rstrip()) for name, text in contents.items()}
    return {**contents, RUN: json.dumps({**run, **schema.entries, **extra}, indent=1) + "\n"}


def options_for_model(folder: str, script: str | None = None, **flags: Any) -> Any:
    """Returns the options for using a model from a run's output folder or a downloaded checkpoint.

    Flags of the training run apply, except device flags; `flags` override them. `script` defaults
    to the script that trained the model, or to `predict_masked` after pre-training. `folder` may
    also be a `.keras` file, or the folder of a model with a head in transformers, whose labels and
    casing apply.
    """
    folder = os.path.expanduser(folder)
    is_file = folder.endswith(".keras")
    if not is_file and RunFolder(folder).find("config.json") and not RunFolder(folder).find(CONFIG):
        folder, own_script, own_flags = _convert(folder)
        script, flags = script or own_script, {**own_flags, **flags}
    run = RunFolder.of(folder) if is_file else RunFolder(folder)
    saved_flags, saved_script = run.require_flags(), run.script
    scripts = [name for name, entry in registry.entries().items() if entry.has_predictor]
    script = script or ("predict_masked" if saved_script == "run_pretraining" else saved_script)
    run.require_one_run()
    if not script:
        advice = advice_for_model_id(folder) or f". Or pass the script: {', '.join(scripts)}"
        raise UserError(_absence(run.file(RUN)) + advice)
    if script not in scripts:
        raise UserError(f"script must be one of {', '.join(scripts)}. Received: {script!r}")
    run.require_script(script)
    entry = registry.entries()[script]
    options_class = entry.options_class
    all_names = {field.name for field in dataclasses.fields(options_class)}
    names = all_names.difference(options_class.names(declare.RUN))
    if unknown := sorted(flags.keys() - names):
        close = " or ".join(similar(unknown[0], sorted(names)))
        advice = f"Did you mean {close}?" if close else f"Valid: {shortened(sorted(names))}"
        advice = use_instead(unknown[0]) or advice
        raise UserError(f"{unknown[0]} is not a flag for a trained {script} model", fix=advice)
    kept = (saved_flags.keys() & names).difference(options_class.names(DEVICES))
    if script != saved_script:  # In another script, a flag of the same name may be another flag.
        kept &= {*options_class.names(MODEL)}
    values = {name: saved_flags[name] for name in kept}
    for name, flag in COPIES.items():
        if is_file and name == CONFIG:  # part of the file
            continue
        values[flag] = run.file(name)
        if flag not in flags and not files.exists(values[flag]):
            raise UserError(_absence(values[flag]), fix=f"Pass {flag}=")
    types = typing.get_type_hints(options_class)
    choices = {field.name: field.metadata["choices"] for field in dataclasses.fields(options_class)}
    passed = {n: check_type(n, value, types[n], choices[n]) for n, value in flags.items()}
    values = options_class.complete(values, passed, run)
    # Fine-tuning scripts load the model from `output_dir`, other scripts from `init_checkpoint`.
    if entry.make_task and is_file:
        return options_class(**values, init_checkpoint=folder, resume="never")
    if entry.make_task:
        options = options_class(**values, init_checkpoint=None, output_dir=run.path)
        warn_of_other_inputs(run, options)
        return options
    return options_class(**values, init_checkpoint=folder)


@functools.cache
def _convert(folder: str) -> tuple[str, str | None, dict[str, Any]]:
    """Converts a model of transformers to the original's format, until the process ends.

    Returns the new folder, the script for its head, if there is one, and the flags that it needs.
    """
    from bert_tf.checkpoints.formats import convert, find_source  # imports TensorFlow
    from bert_tf.checkpoints.tensors import temporary_folder

    source, entries = find_source(folder), registry.entries()
    output = os.path.join(temporary_folder(), os.path.basename(os.path.abspath(folder)))
    make_options = entries["convert_checkpoint"].options_class
    convert(source, make_options(input=folder, output=output, to="original"))
    tasks = ((name, registry.load(x.model)) for name, x in entries.items() if x.make_task)
    heads = {name: getattr(model, "head_format", None) for name, model in tasks}
    script = next((n for n, head in heads.items() if head and head is source.head), None)
    config, flags = source.config(), {"do_lower_case": source.do_lower_case}
    if config and config.max_position_embeddings < 128:  # the default length
        flags["max_seq_length"] = config.max_position_embeddings
    return output, script, {name: value for name, value in flags.items() if value is not None}


def _absence(path: str) -> str:
    return f"No such file: {path} ({files.describe_parent(path)})"


def warn_of_other_inputs(folder: RunFolder, options: Any, longest: int = 0) -> None:
    """Warns about options with another task, or other inputs, than those of the training run."""
    if trained_task := other_task(folder, options):
        warn(f"{folder} was trained for task {trained_task}, not {options.task}")
    names_of_columns = {n for n, value in options.values(DATA).items() if isinstance(value, str)}
    flags = folder.flags
    for name, used in options.values(MODEL).items():
        trained = flags.get(name, used)
        # A new file may name its columns differently, but must have as many.
        is_name = name in names_of_columns
        old, new = (file_names.split(n or "") if is_name else [] for n in (trained, used))
        is_other = len(old) != len(new) or sorted(old) == sorted(new)
        if name == "max_seq_length":  # affects only texts that are about as long
            is_other = longest >= min(trained, used)
        if trained != used and is_other and "auto" not in (trained, used):
            warn(f"{folder} was trained with --{name}={trained!r}, not {used!r}")


def other_task(folder: RunFolder, options: Any) -> str | None:
    """Returns the model's task, if it is known and differs from the options'; otherwise None."""
    trained_task = folder.task or options.task
    return None if options.is_same_task(trained_task, options.task) else trained_task
