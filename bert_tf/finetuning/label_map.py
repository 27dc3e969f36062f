"""`labels.txt`: a model's labels in output order, stored next to its checkpoints."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf import checkpoints, files
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.source import LABELS_FILE, read_labels
from bert_tf.errors import UserError
from bert_tf.options.fine_tuning import FineTuningOptions
from bert_tf.progress import log


def require_same(
    labels: Sequence[str],
    source: str,
    options: FineTuningOptions,
    is_label: Callable[[str], object] = str.strip,
) -> None:
    """Raises a UserError if `labels` differ from those of the checkpoint to resume or evaluate.

    `labels` are in output order; `source` says where they come from. `is_label` validates lines of
    `labels.txt`. A training run that starts from `init_checkpoint` may have different labels.
    """
    folder = (options.output_dir or "") if options.do_train else folder_of_checkpoint(options)
    path = os.path.join(folder, LABELS_FILE)
    if (options.do_train and not _will_resume(options)) or not files.exists(path):
        return
    trained_labels = read_labels(path, is_label)
    if trained_labels != list(labels):
        same_set = sorted(labels) == sorted(trained_labels)
        advice = "Pass the labels in the model's order as --labels, or omit --labels"
        if getattr(options, "task_module", None) and (same_set or not options.do_train):
            advice = "get_labels() must return the same list in every run; a set has no fixed order"
        elif options.do_train:
            advice = "Choose a different --output_dir, or empty this one to start over"
        raise UserError(
            f"{source} has the labels {', '.join(labels)}, but the model in {folder} was "
            f"trained with {', '.join(trained_labels)} ({path}). {advice}"
        )


def warn_about_similar(labels: Sequence[str], source: str) -> None:
    """Warns if labels differ only in case or white space."""
    folded = ["".join(label.split()).casefold() for label in labels]
    similar = [repr(x) for x, y in zip(labels, folded, strict=True) if folded.count(y) > 1]
    if similar:
        log.warning(
            "%s: labels that differ only in case or white space: %s", source, ", ".join(similar)
        )


def folder_of_checkpoint(options: Any) -> str:
    """Returns the folder of the checkpoint that evaluation and prediction load."""
    path = options.init_checkpoint
    if not path or _will_resume(options):
        return options.output_dir or ""
    return path if files.is_dir(path) else os.path.dirname(path)


def _will_resume(options: Any) -> bool:
    return options.resume != "never" and bool(checkpoints.latest(options.output_dir or ""))


def of_checkpoint(
    options: FineTuningOptions, is_label: Callable[[str], object] = str.strip
) -> list[str]:
    """Returns the labels of the checkpoint that evaluation and prediction load; checks them."""
    path = os.path.join(folder_of_checkpoint(options), LABELS_FILE)
    if files.exists(path):
        labels = read_labels(path, is_label)
        # In an exported model. Multiple choice has one output, and its labels are the endings.
        config = os.path.join(os.path.dirname(path), "config.json")
        outputs = files.read_json(config).get("id2label", {}) if files.exists(config) else {}
        if 1 < len(outputs) != len(labels):
            counts = f"{len(labels)} labels, but the model has {len(outputs)} outputs"
            raise UserError(f"{path} has {counts}. Use the file that the training run wrote")
        return labels
    labels = _labels_in_config(options)
    if labels and all(map(is_label, labels)):
        return labels
    raise UserError(
        f"No such file: {path} ({files.describe_absence(path)}). Training writes it next to "
        "its checkpoints: pass --do_train=true, the folder of a training run as --output_dir, or "
        "one of its checkpoints as --init_checkpoint"
        + ", or --labels in the order of the model's outputs"
        * getattr(options, "uses_custom_tables", False)
    )


def _labels_in_config(options: FineTuningOptions) -> list[str] | None:
    path = options.init_checkpoint
    if not path or _will_resume(options):
        return None
    labels = formats.find_source(path).labels
    return labels and [label.strip() for label in labels]


def require_order(labels: Sequence[str], options: FineTuningOptions) -> None:
    """Raises a UserError if a model has the labels of a published task in a different order.

    Without this check, the only symptom would be bad metrics, for example of Hugging Face's MNLI
    models. Only warns if the names differ, because they may still mean the same labels.
    """
    path = os.path.join(folder_of_checkpoint(options), LABELS_FILE)
    exists = files.exists(path)
    saved_labels = files.read_small_file_lines(path) if exists else _labels_in_config(options)
    model_labels = saved_labels or []
    expected, actual = ([str(x).casefold() for x in names] for names in (labels, model_labels))
    if expected != actual and sorted(expected) == sorted(actual):
        raise UserError(
            f"The model's outputs are {', '.join(model_labels)}, but the task's labels are "
            f"{', '.join(labels)}: use --task_name=tsv, which takes the order from the model"
        )
    # A different number of outputs raises an error when the weights are loaded.
    if model_labels and expected != actual and len(expected) == len(actual):
        message = "The model names its outputs %s; assuming that they are %s, in this order"
        log.warning(message, ", ".join(model_labels), ", ".join(labels))
