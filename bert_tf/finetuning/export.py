"""Exports models as SavedModels, in versioned folders for TensorFlow Serving."""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.base import files, locks
from bert_tf.base.errors import note, warn
from bert_tf.checkpoints.formats.saved_model import EXTRA_FOLDER
from bert_tf.checkpoints.run_folder import LABELS, RunFolder
from bert_tf.data.features import sequence_features
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.run_metadata import model_files
from bert_tf.finetuning.task import Task
from bert_tf.saved_models import modules


def export_task(
    task: Task,
    model: Any,
    options: FineTuningOptions,
    export_dir: str,
    *,
    text_input: bool = True,
    jit_compile: bool = False,
) -> str:
    """Exports a fine-tuned model and returns the folder of the new version.

    With `text_input`, the model takes text if the task can (`traits.exports_texts`). The subfolder
    `ids` then contains the same model with token ids as input.
    """
    if task.traits.export_note:
        warn(task.traits.export_note)
    features = [f for f in task.features("predict") if f.name in model.input_names]
    takes_texts = tuple(features) == sequence_features(options.max_seq_length)
    text_inputs = None
    if text_input and takes_texts and task.traits.exports_texts:
        text_inputs = modules.TextInputs(options.tokenizer(), options.max_seq_length)
    with new_version(export_dir, model_files(options, task.schema)) as (folder, assets, version):
        variants = {folder: text_inputs}
        if text_inputs:
            variants[os.path.join(folder, "ids")] = None
        settings = features, assets, bool(task.schema.text_pairs), jit_compile
        fetch = functools.partial(task.fetch, serving=True)
        for path, inputs in variants.items():
            modules.save_task(path, model, fetch, inputs, *settings)
    return version


@contextlib.contextmanager
def new_version(
    export_dir: str, contents: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yields (temporary folder, assets, final folder); renames the temporary folder at the end.

    Save the SavedModel to the temporary folder. In `contents`, `.txt` files become assets (name ->
    path); other files go to `assets.extra`.
    """
    # A concurrent export waits, and then writes the version after this one.
    with locks.exclusive(os.path.join(export_dir, ".lock")):
        newest = max((int(x) for x in files.list_dir(export_dir) if x.isdecimal()), default=0)
        version = os.path.join(export_dir, str(newest + 1))
        with files.temporary_folder_at(f"{version}.tmp") as folder:
            extra_folder = os.path.join(folder, EXTRA_FOLDER)
            files.make_dirs(extra_folder)
            files.write_texts(extra_folder, contents)
            _warn_if_different(os.path.join(export_dir, str(newest)), folder)
            names = [name for name in contents if name.endswith(".txt")]
            assets = {n.removesuffix(".txt"): os.path.join(extra_folder, n) for n in names}
            yield folder, assets, version
            for path in assets.values():
                files.remove(path)
            files.rename(folder, version)
    note(f"Exported a SavedModel to {version}")


def _warn_if_different(previous: str, folder: str) -> None:
    runs = [RunFolder(os.path.join(path, EXTRA_FOLDER)) for path in (previous, folder)]
    compared = {
        "script": [run.script for run in runs],
        "task": [run.task for run in runs],
        LABELS: [run.entry("digests", LABELS) for run in runs],
    }
    for name, (old, new) in compared.items():
        if old and new and old != new:
            warn(f"has another {name} than the new version", at=previous)
            return
