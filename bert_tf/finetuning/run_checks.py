"""Compares a run with the training run that its output directory already contains."""

import dataclasses
import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from bert_tf import registry
from bert_tf.checkpoints.run_folder import LABELS, RunFolder, fingerprint
from bert_tf.declare import DURATION, MODEL, ROWS, WEIGHTS
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.progress import log

_DATA = "training_data"


def describe_data(rows: Collection[Any], digest: str | None = None, unit: str = "rows") -> str:
    """Describes training data for `run.json` by their number of rows and a digest."""
    digest = digest or fingerprint(examples=rows)
    return f"{len(rows)} {unit} ({digest[:8]})"


def check_resumed(options: Any, training_data: str) -> bool:
    """Logs how a run differs from the training run in `output_dir` that it resumes or evaluates.

    Returns False if there is no such run, or if training continues with different data or flags
    that affect the weights. Raises a UserError if the two runs differ in task or kind of output.
    """
    folder, task = RunFolder(options.output_dir or ""), options.task
    script, saved = folder.script, dict(folder.flags)
    if not script or not folder.will_be_resumed_by(options):
        return False
    current = {**dataclasses.asdict(options), _DATA: training_data, "task": task}
    current["script"], saved["script"] = registry.script_of(type(options)), script
    saved[_DATA] = folder.entry(_DATA) or training_data
    saved["task"] = (options.do_train and run_metadata.other_task(folder, options)) or task
    for name in ("script", "task"):
        if saved[name] != current[name]:
            raise UserError(
                f"--output_dir={folder} contains a run with {name}={saved[name]}, but this run "
                f"has {name}={current[name]}. Choose another --output_dir; to start from the "
                f"weights of the earlier run, also pass --init_checkpoint={folder}"
            )
    compared = [_DATA, *options.names(ROWS | WEIGHTS | DURATION)]
    names = [name for name in compared if options.do_train and name in saved]
    # A task compares what it infers from the data.
    inferred = [n for n in options.names(MODEL) if "auto" in (saved.get(n), current[n])]
    changed = [name for name in names if saved[name] != current[name] and name not in inferred]
    for name in changed:
        is_longer = name in options.names(DURATION) and current[name] > saved[name]
        level = logging.INFO if is_longer else logging.WARNING
        subject = "training data changed:" if name == _DATA else name
        # The texts in `run.json` are "1 rows (...)".
        values = (re.sub(r"^1 (row|file)s", r"1 \1", f"{v[name]}") for v in (saved, current))
        log.log(level, "%s: %s was %s, now %s", folder, subject, *values)
    return not changed


def result_suffix(options: Any, longest: int = 0) -> str:
    """Returns a suffix for result files: `_<task>` if `output_dir` was trained for another task.

    Otherwise returns "". Warns if the evaluated model was trained for another task or other inputs.
    """
    folder = RunFolder.used_by(options)
    run_metadata.warn_of_other_inputs(folder, options, longest)
    for problem in options.check_folder(folder):
        log.warning("%s", problem)
    name = os.path.splitext(os.path.basename(options.task))[0].lower()
    is_other = run_metadata.other_task(RunFolder(options.output_dir or ""), options)
    return f"_{name}" if is_other else ""


def require_labels(labels: Sequence[str], source: str, options: Any, advice: str = "") -> None:
    """Raises a UserError if the model to resume or to evaluate has other labels, or another order.

    `labels` are those of the data, and `source` says where they come from. A training run that
    starts from `init_checkpoint` may have different labels.
    """
    if options.do_train and not RunFolder(options.output_dir or "").will_be_resumed_by(options):
        return
    folder = RunFolder.used_by(options)
    if not advice and options.do_train:
        advice = "Choose a different --output_dir, or empty this one to start over"
    advice = advice or "Pass the labels in the model's order as --labels, or omit --labels"
    trained = folder.labels()
    if trained and trained != [*labels]:
        raise UserError(
            f"{source} has the labels {', '.join(labels)}, but the model in {folder} was trained "
            f"with {', '.join(trained)} ({folder.file(LABELS)}). {advice}"
        )


def check_similar_labels(labels: Sequence[str], source: str) -> Iterator[str]:
    """Yields a sentence if labels differ only in case or white space."""
    folded = ["".join(label.split()).casefold() for label in labels]
    similar = [repr(x) for x, y in zip(labels, folded, strict=True) if folded.count(y) > 1]
    if similar:
        yield f"{source}: labels that differ only in case or white space: {', '.join(similar)}"


def give_schema(task: Any) -> Any:
    """Sets the schema of a new task, and returns the task.

    A training run takes it from the training data. Otherwise, it is that of the model or, if the
    model has none, that of the first split that is read.
    """
    options, folder = task.options, RunFolder.used_by(task.options)
    reads = {"train": options.do_train, "eval": options.evaluates, "predict": options.do_predict}
    splits = [split for split, is_read in reads.items() if is_read]
    if not options.do_train and (folder.find(LABELS) or not splits):
        task.schema = task.infer_schema(folder)
        return task
    task.schema = task.infer_schema(splits[0])
    require_labels(task.schema.labels, task.schema.source, options)
    return task
