"""Compares a run with the training run that its output directory already contains."""

import dataclasses
import logging
import os
from collections.abc import Collection
from typing import Any

from bert_tf import checkpoints, registry
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.label_map import folder_of_checkpoint
from bert_tf.progress import log

_DATA = "training_data"
# Flags that users increase to continue a training run.
_DURATIONS = ("num_train_epochs", "num_train_steps")
# The data, and flags that affect the weights or which weights are considered best.
_COMPARED = (_DATA, "train_batch_size", "max_seq_length", "learning_rate", *_DURATIONS)
_COMPARED += ("best_metric", "random_seed", "warmup_proportion", "num_warmup_steps")
_COMPARED += ("adam_bias_correction", "optimizer", "gradient_clip_scope", "length_grouping")
_COMPARED += ("freeze_layers", "eval_every", "class_weights", "long_text", "doc_stride")
_COMPARED += ("max_query_length", "doc_context", "version_2_with_negative")
_COMPARED += ("max_predictions_per_seq", "use_next_sentence")
_COMPARED += ("init_layers", "teacher", "teacher_temperature", "teacher_weight")


def describe_data(rows: Collection[Any], digest: str | None = None, unit: str = "rows") -> str:
    """Describes training data for `run.json` by their number of rows and a digest."""
    digest = digest or run_metadata.fingerprint(examples=rows)
    return f"{len(rows)} {unit} ({digest[:8]})"


def check_resumed(options: Any, training_data: str) -> bool:
    """Logs how a run differs from the training run in `output_dir` that it resumes or evaluates.

    Returns False if there is no such run, or if training continues with different data or
    `_COMPARED` flags. Raises a UserError if the two runs differ in task or kind of output.
    """
    folder, task = options.output_dir or "", run_metadata.requested_task(options)
    script, saved = run_metadata.read_run(folder, default=(None, {}))
    if not script or options.resume == "never" or not checkpoints.latest(folder):
        return False
    current = {**dataclasses.asdict(options), _DATA: training_data, "task": task}
    current["script"], saved["script"] = registry.script_of(type(options)), script
    saved[_DATA] = run_metadata.read_run_string(folder, _DATA) or training_data
    saved["task"] = (options.do_train and run_metadata.other_task(folder, task)) or task
    for name in ("script", "task", "problem_type"):
        if saved.get(name, "auto") not in ("auto", current.get(name)):
            raise UserError(
                f"--output_dir={folder} contains a run with {name}={saved[name]}, but this run "
                f"has {name}={current[name]}. Choose another --output_dir; to start from the "
                f"weights of the earlier run, also pass --init_checkpoint={folder}"
            )
    names = [name for name in _COMPARED if options.do_train and name in saved]
    changed = [name for name in names if saved[name] != current[name]]
    for name in changed:
        is_longer = name in _DURATIONS and current[name] > saved[name]
        level = logging.INFO if is_longer else logging.WARNING
        subject = "training data changed:" if name == _DATA else name
        log.log(level, "%s: %s was %s, now %s", folder, subject, saved[name], current[name])
    return not changed


def result_suffix(options: Any) -> str:
    """Returns a suffix for result files: `_<task>` if `output_dir` was trained for another task.

    Otherwise returns "". Warns if the evaluated model was trained for another task or other inputs.
    """
    folder, task = folder_of_checkpoint(options), run_metadata.requested_task(options)
    saved = run_metadata.read_run(folder, default=(None, {}))[1]
    run_metadata.warn_of_other_inputs(folder, saved, options)
    found_threshold = saved.get("null_score_diff_threshold") == "auto"
    if found_threshold and getattr(options, "null_score_diff_threshold", None) == 0.0:
        message = "%s was trained with --null_score_diff_threshold=auto: pass this flag with the "
        message += "value in its %s"
        log.warning(message, folder, run_metadata.EVAL_RESULTS_JSON)
    name = os.path.splitext(os.path.basename(task))[0].lower()
    return f"_{name}" if run_metadata.other_task(options.output_dir or "", task) else ""
