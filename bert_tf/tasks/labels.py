"""`labels.txt`: the labels of a model in the order of its outputs, beside its checkpoints."""

import os
import re
from collections.abc import Callable, Sequence

from bert_tf import checkpoint, files
from bert_tf.checkpoints import label_map
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.label_map import LABELS_FILE as LABELS
from bert_tf.checkpoints.label_map import read
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log


def contents(labels: Sequence[str]) -> dict[str, str]:
    """The file, by its name."""
    return {LABELS: label_map.to_text(labels)}


def require_same(
    labels: Sequence[str],
    source: str,
    options: FineTuningOptions,
    is_label: Callable[[str], bool] = bool,
) -> None:
    """Refuses labels other than those of the checkpoint that is trained further or read.

    Args:
        labels: that are asked for, in their order.
        source: where they are from, for the message.
        options: with the folders. A training from `init_checkpoint` may have labels of its own.
        is_label: see `read`.

    Raises:
        UserError: they are others.
    """
    goes_on = bool(checkpoint.latest(options.output_dir or "")) and options.resume != "never"
    folder = (options.output_dir or "") if options.do_train else folder_of_checkpoint(options)
    path = os.path.join(folder, LABELS)
    if (options.do_train and not goes_on) or not files.exists(path):
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
    """The folder of the checkpoint that an evaluation or a prediction reads."""
    folder, start = options.output_dir or "", options.init_checkpoint or ""
    # A folder that was converted has a checkpoint of another name.
    if start and (options.resume == "never" or not checkpoint.latest(folder)):
        folder = start if files.is_dir(start) else os.path.dirname(start)
    return folder


def of_checkpoint(options: FineTuningOptions, is_label: Callable[[str], bool] = bool) -> list[str]:
    """The labels of the checkpoint that an evaluation or a prediction reads.

    Raises:
        UserError: there is no such list beside it, or it is not right.
    """
    path = os.path.join(folder_of_checkpoint(options), LABELS)
    if not files.exists(path):
        by_others = labels_of_others(options)
        if by_others and all(map(is_label, by_others)):
            return by_others
        raise UserError(
            f"No such file: {path} ({files.describe_absence(path)}). The training writes it beside "
            "its checkpoints: pass --do_train=true, or its folder as --output_dir, or one of its "
            "checkpoints as --init_checkpoint"
            + (
                ", or --labels in the order of its outputs"
                if getattr(options, "is_own_tables", False)
                else ""
            )
        )
    return read(path, is_label)


def labels_of_others(options: FineTuningOptions) -> list[str] | None:
    """The names that a model of another program has for its outputs, as transformers' do."""
    start = options.init_checkpoint
    goes_on = options.resume != "never" and checkpoint.latest(options.output_dir or "")
    if not start or goes_on:
        return None
    found = find_source(start).labels
    # What transformers calls them where nobody has.
    nameless = found and all(re.fullmatch(r"LABEL_\d+", label) for label in found)
    return None if nameless else found


def require_order(labels: Sequence[str], options: FineTuningOptions) -> None:
    """Refuses a model whose outputs are the labels of a published task in another order.

    Models of transformers have MNLI's in another one, say; names may be written otherwise. Of other
    names it only warns, as they may stand for the same.

    Raises:
        UserError: it is another order; nobody would see it by the figures but as bad ones.
    """
    path = os.path.join(folder_of_checkpoint(options), LABELS)
    found = files.read_small_lines(path) if files.exists(path) else labels_of_others(options)
    ours, theirs = ([str(x).casefold() for x in names] for names in (labels, found or []))
    if ours != theirs and sorted(ours) == sorted(theirs):
        raise UserError(
            f"The outputs of the model are {', '.join(found or [])}, in this order, those of the "
            f"task {', '.join(labels)}: use --task_name=tsv with --text_column and --label_column, "
            "which takes the order from the model"
        )
    # Another number of outputs is found where the weights are read.
    if found and ours != theirs and len(ours) == len(theirs):
        log.warning(
            "The outputs of the model are %s, and are taken for %s of the task, in this order. For "
            "texts of your own use --task_name=tsv",
            ", ".join(found),
            ", ".join(labels),
        )
