"""Compares a run with an earlier one in its folder; describes data; sets a task's schema."""

import os
from collections.abc import Collection, Sequence
from typing import Any

from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints.run_folder import LABELS, RunFolder, fingerprint
from bert_tf.finetuning import run_metadata
from bert_tf.options import registry
from bert_tf.options.declare import DURATION, MODEL, ROWS, WEIGHTS

_DATA = "training_data"


def describe_data(rows: Collection[Any], digest: str | None = None, unit: str = "rows") -> str:
    """Describes training data for `run.json` by their number of rows and a digest."""
    digest = digest or fingerprint(examples=rows)
    return f"{len(rows)} {unit} ({digest[:8]})"


def check_resumed(options: Any, training_data: str) -> bool:
    """Compares a run with the training run in `output_dir` that it resumes or evaluates.

    Raises a UserError if the script differs or, when training, the task. When training, logs
    changed data and flags. Returns whether there is such a run, and nothing changed.
    """
    folder, script = RunFolder(options.output_dir or ""), registry.script_of(type(options))
    trained_by, flags = folder.script, folder.flags
    if not trained_by or not folder.will_be_resumed_by(options):
        return False
    other_task = options.do_train and run_metadata.other_task(folder, options)
    required = {"script": (trained_by, script)}
    required["task"] = (other_task or options.task, options.task)
    for name, (before, now) in required.items():
        if before != now:
            advice = f"Choose another one; to start from these weights, --init_checkpoint={folder}"
            raise UserError(f"--output_dir={folder} has {name}={before}, not {now}", fix=advice)
    if not options.do_train:
        return True
    compared = {"the training data": (folder.entry(_DATA) or training_data, training_data)}
    for name in options.names(ROWS | WEIGHTS | DURATION):
        values = flags.get(name), getattr(options, name)
        # For "auto", the task compares the inferred values.
        is_inferred = name in options.names(MODEL) and "auto" in values
        if name in flags and not is_inferred:
            compared[name] = values
    changed = {name: values for name, values in compared.items() if values[0] != values[1]}
    for name, (before, now) in changed.items():
        is_longer = name in options.names(DURATION) and now > before
        (note if is_longer else warn)(f"{name} was {before}, now {now}", at=str(folder))
    return not changed


def result_suffix(options: Any, longest: int = 0) -> str:
    """Returns a suffix for result files: `_<task>` if `output_dir` was trained for another task.

    Otherwise returns "". Warns if the evaluated model was trained for another task or other inputs.
    """
    folder = RunFolder.used_by(options)
    run_metadata.warn_of_other_inputs(folder, options, longest)
    for problem in options.check_folder(folder):
        warn(problem)
    name = os.path.splitext(os.path.basename(options.task))[0].lower()
    is_other = run_metadata.other_task(RunFolder(options.output_dir or ""), options)
    return f"_{name}" if is_other else ""


def require_same_labels(labels: Sequence[str], source: str, options: Any, advice: str = "") -> None:
    """Raises a UserError if the model to resume or to evaluate differs in labels or their order.

    `labels` are those of the data, and `source` says where they come from. A training run that
    starts from `init_checkpoint` may have different labels.
    """
    if options.do_train and not RunFolder(options.output_dir or "").will_be_resumed_by(options):
        return
    folder = RunFolder.used_by(options)
    if not advice and options.do_train:
        advice = "Choose another --output_dir, or empty this one"
    advice = advice or "Pass the labels in the model's order as --labels, or omit --labels"
    trained, place = folder.labels(), folder.file(LABELS)
    if trained is None:
        # Other names than in a configuration may mean the same outputs; another order does not.
        declared, place = folder.declared_labels() or [], "in its configuration"
        old, new = ([label.casefold() for label in names] for names in (declared, labels))
        trained = declared if sorted(old) == sorted(new) and old != new else None
    if trained and trained != [*labels]:
        theirs = f"the model in {folder} was trained with {', '.join(trained)} ({place})"
        problem = f"{source} has the labels {', '.join(labels)}, but {theirs}"
        raise UserError(problem, fix=advice)


def give_schema(task: Any) -> Any:
    """Sets the schema of a new task, and returns the task.

    A training run takes it from the training data. Otherwise, it is that of the model, if it has a
    `labels.txt` or no split is read; otherwise, that of the first split.
    """
    options, folder = task.options, RunFolder.used_by(task.options)
    splits = options.read_splits
    if not options.do_train and (folder.find(LABELS) or not splits):
        task.schema = task.infer_schema(folder)
        return task
    task.schema = task.infer_schema(splits[0])
    require_same_labels(task.schema.labels, task.schema.source, options)
    return task
