"""Loads initial and trained weights for all scripts."""

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf import checkpoints
from bert_tf.checkpoints.formats import SavedModelSource, find_source
from bert_tf.checkpoints.hub_parity import require_same_outputs
from bert_tf.checkpoints.model import restore_source
from bert_tf.checkpoints.run_folder import RunFolder
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
    checkpoint = RunFolder(output_dir).checkpoint_to_resume(options)
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
    begun_from = RunFolder(options.output_dir).entry("begun_from")
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


def restore_trained(model: keras.Model, folder: str) -> None:
    """Restores the checkpoint to use, which must have exactly the variables of the model."""
    prefix = RunFolder(folder).checkpoint()
    run_metadata.warn_if_untrained(prefix)
    advice = ". If it was not fine-tuned for this task, train it first (--do_train=true)"
    restore_strict(model, prefix, advice)
