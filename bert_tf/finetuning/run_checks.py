"""Compares a run with the training that its output directory already holds."""

import dataclasses
import logging
import os
from collections.abc import Collection
from typing import Any

from bert_tf import checkpoints, registry
from bert_tf.errors import UserError
from bert_tf.finetuning.label_map import folder_of_checkpoint
from bert_tf.finetuning.record_cache import fingerprint
from bert_tf.finetuning.run_metadata import hint, other_task, read_run
from bert_tf.progress import log

_DATA = "training data changed:"
# Increasing these is how one continues a training run.
_LENGTHS = ("num_train_epochs", "num_train_steps")
# Flags that change the weights, or the choice of the best ones.
_COMPARED = (_DATA, "train_batch_size", "max_seq_length", "learning_rate", *_LENGTHS, "best_metric")
_COMPARED += ("random_seed", "warmup_proportion", "num_warmup_steps", "adam_bias_correction")
_COMPARED += ("optimizer", "gradient_clip_scope", "length_grouping", "freeze_layers", "eval_every")
_COMPARED += ("class_weights", "long_text", "doc_stride", "max_query_length", "doc_context")
_COMPARED += ("version_2_with_negative", "max_predictions_per_seq", "use_next_sentence")
_COMPARED += ("teacher", "teacher_temperature", "teacher_weight")


def describe_data(rows: Collection[Any], digest: str | None = None) -> str:
    """Describes training data for `run.json`: the number of rows and their digest."""
    return f"{len(rows)} rows ({(digest or fingerprint(examples=rows))[:8]})"


def check_resumed(options: Any, training_data: str) -> bool:
    """Logs how a run differs from the training in `output_dir` that it resumes or evaluates.

    Compares the flags that `run.json` has, and returns whether they are equal. Raises a UserError
    if the training has another task or another kind of output.
    """
    folder, asked = options.output_dir or "", task_of(options)
    script, before = read_run(folder, damaged=(None, {}))
    if not script or options.resume == "never" or not checkpoints.latest(folder):
        return False
    now = {**dataclasses.asdict(options), _DATA: training_data, "task": asked}
    now["script"], before["script"] = registry.script_of(type(options)), script
    before[_DATA] = hint(folder, "training_data") or training_data
    before["task"] = (options.do_train and other_task(folder, asked)) or asked
    for name in ("script", "task", "problem_type"):
        if before.get(name, "auto") not in ("auto", now.get(name)):
            raise UserError(
                f"--output_dir={folder} holds a training with {name}={before[name]}, and this run "
                f"has {name}={now[name]}. Choose another --output_dir; --init_checkpoint={folder} "
                "starts a new training from those weights"
            )
    names = [name for name in _COMPARED if options.do_train and name in before]
    changed = [name for name in names if before[name] != now[name]]
    for name in changed:
        is_longer = name in _LENGTHS and now[name] > before[name]
        level = logging.INFO if is_longer else logging.WARNING
        log.log(level, "%s: %s was %s, now %s", folder, name, before[name], now[name])
    return not changed


def check_evaluated(options: Any) -> str:
    """Warns if a model was trained for another task than it is evaluated on.

    Returns a suffix for results that would overwrite those of the trained task, or "".
    """
    folder, asked = folder_of_checkpoint(options), task_of(options)
    trained = other_task(folder, asked)
    if trained:
        log.warning("%s: trained as %s, asked as %s", folder, trained, asked)
    before = read_run(folder, damaged=(None, {}))[1]
    has_negative = before.get("version_2_with_negative", True)
    if getattr(options, "version_2_with_negative", False) and not has_negative:
        log.warning("%s was trained without --version_2_with_negative: leave it out", folder)
    name = os.path.splitext(os.path.basename(asked))[0].lower()
    return f"_{name}" if other_task(options.output_dir or "", asked) else ""


def task_of(options: Any) -> str:
    """Returns the task that options name, "" if the script has only one."""
    return getattr(options, "task_name", None) or getattr(options, "task_module", None) or ""
