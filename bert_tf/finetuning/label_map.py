"""`labels.txt`: the labels of a model in the order of its outputs, beside its checkpoints."""

import os
import re
from collections.abc import Callable, Sequence

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.label_map import LABELS_FILE as LABELS
from bert_tf.checkpoints.label_map import read
from bert_tf.errors import UserError
from bert_tf.options.fine_tuning import FineTuningOptions
from bert_tf.progress import log


def require_same(
    labels: Sequence[str],
    source: str,
    options: FineTuningOptions,
    is_label: Callable[[str], bool] | None = None,
) -> None:
    """Raises a UserError if labels are not those of the checkpoint that is resumed or evaluated.

    `labels` are in order; `source` says where they are from. A training from `init_checkpoint` may
    have labels of its own.
    """
    folder = (options.output_dir or "") if options.do_train else folder_of_checkpoint(options)
    path = os.path.join(folder, LABELS)
    if (options.do_train and not _resumes(options)) or not files.exists(path):
        return
    before = read(path, is_label)
    if before != list(labels):
        advice = (
            "Choose another --output_dir, or empty this one to start anew"
            if options.do_train
            else "Its outputs are in that order: leave out --labels, or correct it"
        )
        raise UserError(
            f"{source} has the labels {', '.join(labels)}, but the training in {folder} had "
            f"{', '.join(before)} ({path}). {advice}"
        )


def folder_of_checkpoint(options: FineTuningOptions) -> str:
    """Returns the folder of the checkpoint that an evaluation or a prediction reads."""
    start = options.init_checkpoint
    if not start or _resumes(options):
        return options.output_dir or ""
    return start if files.is_dir(start) else os.path.dirname(start)


def _resumes(options: FineTuningOptions) -> bool:
    return options.resume != "never" and bool(checkpoints.latest(options.output_dir or ""))


def of_checkpoint(
    options: FineTuningOptions, is_label: Callable[[str], bool] | None = None
) -> list[str]:
    """Returns the labels of the checkpoint that an evaluation or a prediction reads."""
    path = os.path.join(folder_of_checkpoint(options), LABELS)
    if files.exists(path):
        return read(path, is_label)
    labels = _labels_of_source(options)
    if labels and (is_label is None or all(map(is_label, labels))):
        return labels
    raise UserError(
        f"No such file: {path} ({files.describe_absence(path)}). The training writes it beside "
        "its checkpoints: pass --do_train=true, or its folder as --output_dir, or one of its "
        "checkpoints as --init_checkpoint"
        + ", or --labels in the order of its outputs"
        * getattr(options, "is_own_tables", False)
    )


def _labels_of_source(options: FineTuningOptions) -> list[str] | None:
    """Returns the labels in the configuration of another library's model."""
    start = options.init_checkpoint
    if not start or _resumes(options):
        return None
    labels = find_source(start).labels
    # The default label names in Hugging Face Transformers.
    nameless = labels and all(re.fullmatch(r"LABEL_\d+", label) for label in labels)
    return None if nameless else labels


def require_order(labels: Sequence[str], options: FineTuningOptions) -> None:
    """Raises a UserError if a model has the labels of a published task in another order.

    That would only show as bad metrics: models of transformers, for example, have MNLI's in another
    order. Warns about different names, which may mean the same labels.
    """
    path = os.path.join(folder_of_checkpoint(options), LABELS)
    outputs = files.read_small_lines(path) if files.exists(path) else _labels_of_source(options)
    ours, theirs = ([str(x).casefold() for x in names] for names in (labels, outputs or []))
    if ours != theirs and sorted(ours) == sorted(theirs):
        raise UserError(
            f"The outputs of the model are {', '.join(outputs or [])}, in this order, those of the "
            f"task {', '.join(labels)}: use --task_name=tsv, which takes the order from the model"
        )
    # A different number of outputs raises an error when the weights are loaded.
    if outputs and ours != theirs and len(ours) == len(theirs):
        message = "The outputs of the model are %s, and are taken for %s of the task, in this order"
        log.warning(message, ", ".join(outputs), ", ".join(labels))
