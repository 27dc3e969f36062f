"""Loads initial and trained weights for all scripts."""

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats import SavedModelSource, find_source
from bert_tf.checkpoints.formats.source import best_prefix
from bert_tf.checkpoints.hub_parity import require_same_outputs
from bert_tf.checkpoints.model import restore_source
from bert_tf.data.cell_values import counted
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.progress import log


def restore_from(model: keras.Model, path: str, layers: Sequence[int] = ()) -> checkpoints.Restored:
    """Loads weights in any format that `find_source` knows; `layers` selects encoder layers."""
    source = find_source(path)
    restored = restore_source(model, source, layers)
    if layers:
        listed, count = ", ".join(map(str, layers)), counted(len(layers), "layer")
        log.info("Initialized %s from %s: %s, counting from 0", count, source.path, listed)
    elif isinstance(source, SavedModelSource) and source.is_encoder:
        require_same_outputs(source, model.config)
    return restored


def restore_weights(model: keras.Model, options: Any) -> str | None:
    """Loads the newest checkpoint in `output_dir`, or `init_checkpoint` if there is none.

    Without training, loads the best checkpoint if the run had `eval_every`. Skips damaged
    checkpoints. Returns the checkpoint in `output_dir`, or None if it has none. Raises a UserError
    if the checkpoint does not match the model, or if `resume` forbids loading it.
    """
    output_dir, init_checkpoint = options.output_dir or "", options.init_checkpoint
    checkpoint = _output_checkpoint(output_dir, options.do_train, options.resume)
    if checkpoint:
        _resume(model, checkpoint, options)
        return checkpoint
    if not init_checkpoint:
        log.warning(
            "No --init_checkpoint: all weights are initialized randomly%s",
            "" if options.do_train else ", and stay random without --do_train=true",
        )
        return None
    restored = restore_from(model, init_checkpoint, getattr(options, "init_layer_numbers", []))
    folder = os.path.dirname(restored.prefix)
    if options.do_train and os.path.normpath(folder) == os.path.normpath(output_dir):
        log.warning(
            "--output_dir=%s contains the --init_checkpoint: later runs with this folder as "
            "--init_checkpoint would load this run's checkpoints. Choose a different --output_dir",
            output_dir,
        )
    log.info("%s", restored.describe())
    run_metadata.warn_if_untrained(restored.prefix, options.do_train)
    if restored.new and not options.do_train:
        log.warning(
            "Not in %s, so initialized randomly: %s. Without --do_train=true the results are "
            "meaningless: pass a fine-tuned model.ckpt-N as --init_checkpoint",
            restored.prefix,
            checkpoints.summarize(restored.new),
        )
    return None


def _resume(model: keras.Model, checkpoint: str, options: Any) -> None:
    try:
        restored = restore_strict(model, checkpoint)
    except UserError as error:
        problem = f"Cannot load the checkpoint in --output_dir={options.output_dir}"
        advice = "Pass the flags of the training run"
        if options.do_train:
            advice = "Choose another --output_dir, or empty this one to start over"
        raise UserError(f"{problem}. {error}. {advice}") from error
    action = "Resuming from" if options.do_train else "Loaded"
    log.info("%s %s (%d variables)", action, checkpoint, len(restored.restored))
    run_metadata.warn_if_untrained(checkpoint, options.do_train)
    init_checkpoint = options.init_checkpoint
    if not init_checkpoint:
        return
    begun_from = run_metadata.read_run_string(options.output_dir, "begun_from")
    known = [_normalize(path) for path in (checkpoint, begun_from) if path]
    if _normalize(init_checkpoint) not in known:
        log.log(
            logging.WARNING if begun_from else logging.INFO,
            "--init_checkpoint=%s is ignored: --output_dir has its own checkpoints%s",
            init_checkpoint,
            f", from a run that started from {begun_from}" if begun_from else "",
        )


def _normalize(path: str) -> str:
    """Returns the prefix of the checkpoint at a path, which may be its folder, for comparisons."""
    with contextlib.suppress(UserError):
        path = checkpoints.resolve(path)
    return os.path.normpath(path)


def _output_checkpoint(output_dir: str, do_train: bool, resume: str) -> str | None:
    """Returns the newest readable checkpoint or, without training, the best one if it exists."""
    checkpoint = None
    if do_train or resume != "never":
        best = None if do_train else best_prefix(output_dir)
        checkpoint = best or checkpoints.newest_readable(output_dir)
    if checkpoint and resume == "never":
        raise UserError(
            f"--resume=never, but --output_dir={output_dir} has checkpoints: {checkpoint}. Choose "
            "another --output_dir, or empty this one"
        )
    if not checkpoint and resume == "must":
        found = files.describe_absence(os.path.join(output_dir, "*"))
        raise UserError(f"--resume=must, but --output_dir={output_dir} has no checkpoint ({found})")
    return checkpoint


def restore_strict(model: keras.Model, prefix: str, advice: str = "") -> checkpoints.Restored:
    """Restores a checkpoint that must have exactly the model's variables.

    `advice` ends the message about variables that the checkpoint lacks.
    """
    restored = checkpoints.restore(model, prefix)
    if restored.new or restored.unused:
        missing, unexpected = map(checkpoints.summarize, (restored.new, restored.unused))
        raise UserError(
            f"{prefix} does not match this model. Missing variables: {missing}; unexpected "
            f"variables: {unexpected}{advice if restored.new else ''}"
        )
    return restored


def trained_checkpoint(folder: str) -> str:
    """Returns the best checkpoint of a training run with `--eval_every`, otherwise the newest."""
    prefix = best_prefix(folder) or checkpoints.newest_readable(folder)
    # The folder's list of checkpoints lacks one that was copied here or stripped of its optimizer.
    return prefix or checkpoints.resolve(folder)


def restore_trained(model: keras.Model, folder: str) -> None:
    """Restores `trained_checkpoint`, which must have exactly the variables of the model."""
    prefix = trained_checkpoint(folder)
    run_metadata.warn_if_untrained(prefix)
    advice = ". If it was not fine-tuned for this task, train it first (--do_train=true)"
    restore_strict(model, prefix, advice)
