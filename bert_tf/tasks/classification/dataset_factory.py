"""Creates the dataset that the options of `run_classifier.py` describe."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Sequence

from bert_tf import files
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.split_files import NAMES, find_files
from bert_tf.data.tables import read_table
from bert_tf.errors import UserError
from bert_tf.finetuning import run_checks
from bert_tf.options import ClassifierOptions
from bert_tf.progress import log
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.custom_dataset import HEADER, CustomDataset
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, REGRESSION
from bert_tf.tasks.classification.task_module import INPUTS, load_task_module


def make_dataset(options: ClassifierOptions) -> TextDataset:
    """Returns the dataset, after inferring labels and problem type from any custom training file.

    If `do_train`, `do_eval` and `do_predict` are all false, as for a `Predictor`, reads no data.
    """
    reads_data = options.do_train or options.evaluates or options.do_predict
    data: TextDataset
    # A Predictor does not need the task module, which may no longer exist.
    if options.uses_custom_tables or (options.task_module and not reads_data):
        data = _make_custom_dataset(options, _find_paths(options) if reads_data else {})
    elif options.task_module:
        data = load_task_module(options.task_module, options.data_dir or "")
    else:
        data = glue.GlueDataset(glue.task_named(options.task_name or ""), options.data_dir or "")
    if options.task_module and not options.do_train:
        # Only the training examples show whether texts are pairs.
        saved = RunFolder.used_by(options).entry("inputs")
        data.has_pairs = next((value for value, name in INPUTS.items() if name == saved), None)
    if not data.is_published:
        given_in = options.task_module or ("--labels" if options.labels else None)
        label_source = given_in or (data.describe("train") if options.do_train else data.name)
        require_labels(data.labels, label_source, options)
    elif not options.do_train:
        _require_order(data.labels, RunFolder.used_by(options))
    if options.glue_submission and not data.submission:
        raise UserError(f"--glue_submission: {data.name} is not a GLUE task")
    return data


def _find_paths(options: ClassifierOptions) -> dict[str, str]:
    """Returns the path of each split to read, and the training file if dev rows come from it."""
    # A training run without a dev file holds out rows even if it does not evaluate.
    needs_eval_rows = options.do_train or options.evaluates
    needed = {"train": options.do_train, "eval": needs_eval_rows, "predict": options.do_predict}
    splits = [split for split, is_needed in needed.items() if is_needed]
    paths = find_files(options, splits)
    if needs_eval_rows and not options.do_train and "eval" not in paths:
        splits.append("train")
        paths |= find_files(options, ["train"])
    if options.evaluates and "eval" not in paths and not options.dev_fraction:
        raise UserError("There is no file to evaluate on: pass --eval_file, or --dev_fraction=0.2")
    if "eval" in paths and options.dev_fraction not in (0, ClassifierOptions().dev_fraction):
        message = "--dev_fraction=%g has no effect, as there is a dev file: %s. Check --eval_file"
        log.warning(message, options.dev_fraction, paths["eval"])
    for split in splits:
        if split not in paths and split != "eval":
            reason = files.describe_absence(os.path.join(options.data_dir or ".", "*"))
            advice = f"pass --{split}_file, or put {NAMES[split][0]}.tsv into --data_dir"
            raise UserError(f"There is no file to {split} on: {advice} ({reason})")
    return paths


def _make_custom_dataset(options: ClassifierOptions, paths: dict[str, str]) -> CustomDataset:
    labels = list(map(str.strip, options.labels.split(","))) if options.labels else []
    header = None
    if not options.do_train:
        folder = RunFolder.used_by(options)
        header = folder.entry(HEADER)
        options = dataclasses.replace(options, problem_type=_find_trained_problem_type(options))
        _warn_about_columns(options, paths, folder)
        if not labels and options.problem_type != REGRESSION:
            advice = ", or --labels in the order of the model's outputs"
            labels = folder.require_labels(advice=advice)
    if options.teacher:
        _warn_about_columns(options, {"train": paths["train"]}, RunFolder(options.teacher))
    if options.ignores_labels:
        teacher = RunFolder(options.teacher or "")
        trained = teacher.entry("flags", "problem_type")
        if options.problem_type == AUTO and trained:
            options = dataclasses.replace(options, problem_type=trained)
        labels = labels or teacher.labels() or []
    return CustomDataset(paths, options, labels, header.split("\t") if header else ())


def _find_trained_problem_type(options: ClassifierOptions) -> str:
    folder, requested = RunFolder.used_by(options), options.problem_type
    trained = folder.entry("flags", "problem_type")
    if AUTO not in (requested, trained or AUTO) and requested != trained:
        reason = f"the model in {folder} was trained with {trained}"
        raise UserError(f"--problem_type={requested}, but {reason}: omit the flag")
    # Models trained by other tools have no run metadata: assume classification.
    return (trained or CLASSIFICATION) if requested == AUTO else requested


def _warn_about_columns(
    options: ClassifierOptions, paths: dict[str, str], folder: RunFolder
) -> None:
    """Warns if the texts come from different columns than those of the model in a folder."""
    flags = ("text_column", "text_pair_column")
    trained = [folder.entry("flags", flag) for flag in flags]
    requested = [getattr(options, flag) for flag in flags]
    differs = bool(trained[1]) != bool(requested[1])
    # A new file may name its columns differently: warn only if it also has the training columns.
    regular = [path for path in paths.values() if not files.is_stream(path)]
    for path in regular if not (requested[0] or "").isdecimal() else ():
        cells = re.split(r'[\t,;"]', next(iter(files.read_lines(path)), ""))
        differs |= trained != requested and {*filter(None, trained)} <= {*map(str.strip, cells)}
    if not options.do_train:
        _warn_about_missing_label(options, folder, regular)
    if paths and trained[0] and differs:
        descriptions = [" and ".join(filter(None, columns)) for columns in (trained, requested)]
        message = "%s: trained on column %s, not %s. Check --text_column, --text_pair_column"
        log.warning(message, folder, *descriptions)


def _warn_about_missing_label(
    options: ClassifierOptions, folder: RunFolder, paths: list[str]
) -> None:
    """Warns if files lack the label column that precedes the text in the training file.

    The number of the text column then stands for a different column.
    """
    saved = folder.flags
    text, label = options.text_column or "", saved.get("label_column") or ""
    if not (text.isdecimal() and label.isdecimal() and int(label) < int(text)):
        return
    flags = {name: saved.get(name) for name in ("data_dir", "train_file")}
    with contextlib.suppress(UserError):  # The training file may no longer exist.
        for training_file in find_files(dataclasses.replace(options, **flags), ["train"]).values():
            expected = _count_columns(training_file, options.quoted)
            for path in paths:
                num_columns = _count_columns(path, options.quoted)
                if 0 < num_columns < expected:
                    message = "%s has %d columns, but the training file has %d. Check --text_column"
                    log.warning(message, path, num_columns, expected)


def _count_columns(path: str, quoted: str) -> int:
    """Returns the number of columns in the first row of a table; 0 if it is empty."""
    return next((len(row.cells) for row in read_table(path, quoted)), 0)


def require_labels(labels: Sequence[str], source: str, options: ClassifierOptions) -> None:
    """Raises a UserError if the model to resume or to evaluate has other labels."""
    trained, advice = RunFolder.used_by(options).labels() or [], ""
    if options.task_module and (not options.do_train or sorted(labels) == sorted(trained)):
        advice = "get_labels() must return the same list in every run; a set has no fixed order"
    run_checks.require_labels(labels, source, options, advice)


def _require_order(labels: Sequence[str], folder: RunFolder) -> None:
    """Raises a UserError if a model has the labels of a published task in a different order.

    Without this check, the only symptom would be bad metrics, for example of Hugging Face's MNLI
    models. Only warns if the names differ, because they may still mean the same labels.
    """
    model_labels = folder.declared_labels() or []
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
