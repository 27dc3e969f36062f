"""Loads the weights with which a run starts."""

import contextlib
import logging
import os
from typing import Any

import keras

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.base.progress import log
from bert_tf.checkpoints.folder import warn_if_incomplete
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.formats.configs import POOLER
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.options import registry


def load_first_weights(model: keras.Model, options: Any) -> str | None:
    """Loads the newest checkpoint in `output_dir`, or `init_checkpoint` if there is none.

    Without training, loads the best checkpoint if the run had `eval_every`. Skips damaged
    checkpoints. Returns the checkpoint in `output_dir`, or None if it has none. Raises a UserError
    if the checkpoint does not match the model, or if `resume` forbids loading it.
    """
    checkpoint = RunFolder(options.output_dir or "").checkpoint_to_resume(options)
    if checkpoint:
        _load_own_checkpoint(model, checkpoint, options)
    elif options.init_checkpoint:
        _load_init_checkpoint(model, options)
    else:
        is_pretraining = not registry.entries()[registry.script_of(type(options))].make_task
        log.log(
            logging.INFO if is_pretraining and options.do_train else logging.WARNING,
            "No --init_checkpoint: all weights are initialized randomly%s",
            "" if options.do_train else ", and stay random without --do_train=true",
        )
    return checkpoint


def _load_own_checkpoint(model: keras.Model, checkpoint: str, options: Any) -> None:
    try:
        source = find_source(checkpoint)
        if options.do_train:  # The notes would say that training has not ended.
            source.notes.clear()
        loaded = checkpoints.load_weights(model, source)
        loaded.require_exact(advice="")
    except UserError as error:
        problem = f"Cannot load the checkpoint in --output_dir={options.output_dir}"
        advice = "Pass the flags of the training run"
        if options.do_train:
            advice = "Choose another --output_dir, or empty this one to start over"
        raise UserError(f"{problem}. {error}", fix=advice) from error
    action = "Resuming from" if options.do_train else "Loaded"
    note(f"{action} {checkpoint} ({len(loaded.restored)} variables)")
    init_checkpoint = options.init_checkpoint
    if not init_checkpoint:
        return
    begun_from = RunFolder(options.output_dir).entry("begun_from")
    known = [_normalize(path) for path in (checkpoint, begun_from) if path]
    if _normalize(init_checkpoint) not in known:
        # A path that does not exist may be the one that the checkpoint had before it was moved.
        exists = begun_from and any(map(files.exists, (begun_from, f"{begun_from}.index")))
        log.log(
            logging.WARNING if exists else logging.INFO,
            "--init_checkpoint=%s is ignored: --output_dir has its own checkpoints%s",
            init_checkpoint,
            f", from a run that started from {begun_from}" if begun_from else "",
        )


def _load_init_checkpoint(model: keras.Model, options: Any) -> None:
    layers = options.init_layer_numbers
    warn_if_incomplete(options.init_checkpoint)
    loaded = checkpoints.load_weights(model, find_source(options.init_checkpoint), layers)
    if layers:
        listed, count = ", ".join(map(str, layers)), counted(len(layers), "layer")
        note(f"Initialized {count} from {loaded.prefix}: {listed}, counting from 0")
    folder, output_dir = os.path.dirname(loaded.prefix), options.output_dir or ""
    if options.do_train and os.path.normpath(folder) == os.path.normpath(output_dir):
        warn(
            f"--init_checkpoint is in --output_dir={output_dir}: a later run with "
            "this folder as --init_checkpoint would start from this run's weights",
            fix="Choose another --output_dir",
        )
    note(loaded.describe())
    if options.do_train:
        if {*POOLER} <= {*loaded.new}:
            warn(f"{loaded.prefix} has no pooler, which this task trains from random weights")
    elif loaded.new:
        warn(
            f"Not in {loaded.prefix}, so initialized randomly: {checkpoints.summarize(loaded.new)}",
            fix="Without --do_train=true the results are meaningless: pass a checkpoint "
            f"that {registry.script_of(type(options))}.py trained as "
            "--init_checkpoint",
        )


def _normalize(path: str) -> str:
    """Returns the prefix of the checkpoint at a path, which may be its folder, for comparisons."""
    with contextlib.suppress(UserError):
        path = checkpoints.resolve(path)
    return os.path.realpath(path)
