"""Creates the dataset for the options of `run_classifier.py`; computes the scale of targets."""

import json
from collections.abc import Sequence

import numpy as np

from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.run_folder import TARGET_SCALE, RunFolder
from bert_tf.data.split_files import find_files, no_file
from bert_tf.finetuning import run_checks
from bert_tf.options import ClassifierOptions
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.custom_dataset import CustomDataset
from bert_tf.tasks.classification.datasets import PROBLEM_TYPE, TextDataset
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, MULTILABEL, REGRESSION
from bert_tf.tasks.classification.task_module import INPUTS, KINDS, load_task_module

_ENTRIES = (INPUTS, TARGET_SCALE)
# Targets are standardized if one exceeds this size, or if their deviation is smaller than this.
_MAX_TARGET, _MIN_DEVIATION = 10, 0.1


def make_dataset(options: ClassifierOptions, source: str | RunFolder) -> TextDataset:
    """Returns the dataset that the options describe.

    `source` is the argument of `Task.infer_schema`: the folder of a trained model, or a split.
    Raises a UserError if a model to resume has other labels or a different kind of output.
    """
    folder = None if options.do_train else RunFolder.used_by(options)
    folder = source if isinstance(source, RunFolder) else folder
    data: TextDataset
    # A Predictor does not need the task module, which may no longer exist.
    if options.uses_custom_tables or (options.task_module and not options.read_splits):
        data = _make_custom_dataset(options, folder)
    elif options.task_module:
        data = load_task_module(options.task_module, options.data_dir or "")
        if not folder:
            data.read("train")  # sets whether texts are pairs, and the names of targets
        elif data.problem_type == REGRESSION:
            data.labels = _target_names(folder)
        elif trained_problem_type(folder) == MULTILABEL:
            data.problem_type = MULTILABEL
    else:
        data = glue.GlueDataset(glue.task_named(options.task_name or ""), options.data_dir or "")
    if folder:
        saved = {name: folder.entry(name) for name in _ENTRIES}
        data.entries = {name: value for name, value in saved.items() if value is not None}
        if options.task_module:
            data.has_pairs = {kind: pairs for pairs, kind in KINDS.items()}.get(saved[INPUTS])
    if folder and data.is_published:
        _require_order(data.labels, folder)
    elif not data.is_published:
        is_module = bool(options.task_module)
        advice = "get_labels() must return the same list in every run" * is_module
        run_checks.require_same_labels(data.labels, label_source(data, options), options, advice)
    for model in resumed_folders(options):
        trained = trained_problem_type(model)
        if trained not in (None, data.problem_type):
            problem = f"its model has problem_type={trained}, and this run has {data.problem_type}"
            raise UserError(problem, at=str(model))
    if options.glue_submission and not data.submission:
        raise UserError(f"--glue_submission: {data.name} is not a GLUE task")
    return data


def label_source(data: TextDataset, options: ClassifierOptions) -> str:
    """Returns where the labels come from, for messages."""
    given_in = options.task_module or ("--labels" if options.labels else None)
    return given_in or (data.describe("train") if options.do_train else data.name)


def _find_paths(options: ClassifierOptions) -> dict[str, str]:
    """Returns the path of each split to read; of the training file, too, if dev rows are in it."""
    # A training run without a dev file holds out rows even if it does not evaluate.
    needs_eval_rows = options.do_train or options.evaluates
    needed = {"train": options.do_train, "eval": needs_eval_rows, "predict": options.do_predict}
    splits = [split for split, is_needed in needed.items() if is_needed]
    paths = find_files(options, splits) if splits else {}  # none in a Predictor
    if needs_eval_rows and not options.do_train and "eval" not in paths:
        splits.append("train")
        paths |= find_files(options, ["train"])
    for split in splits:
        can_be_held_out = options.dev_fraction or not options.evaluates
        if split not in paths and not (split == "eval" and can_be_held_out):
            advice = ", or pass --dev_fraction=0.2" * (split == "eval")
            if split == "train" and not options.do_train:
                split, advice = "eval", ", or pass --train_file to evaluate a part of it"
            raise no_file(split, options.data_dir, advice)
    return paths


def _make_custom_dataset(options: ClassifierOptions, folder: RunFolder | None) -> CustomDataset:
    paths = _find_paths(options)
    labels = list(map(str.strip, options.labels.split(","))) if options.labels else []
    problem_type = options.problem_type
    models = [folder] if folder else []
    if folder:
        trained = trained_problem_type(folder)
        if problem_type == AUTO:
            # Models trained by other tools have no run metadata: assume classification.
            problem_type = trained or CLASSIFICATION
        elif trained not in (None, problem_type):
            reason = f"the model in {folder} was trained with {trained}"
            raise UserError(f"--problem_type={problem_type}, but {reason}: omit the flag")
        if problem_type == REGRESSION:
            labels = labels or _target_names(folder)
        elif not labels:
            advice = ", or --labels in the order of the model's outputs"
            labels = folder.require_labels(advice=advice)
    if options.teacher:
        models.append(teacher := RunFolder(options.teacher))
        if options.ignores_labels:
            if problem_type == AUTO:
                problem_type = trained_problem_type(teacher) or AUTO
            labels = labels or teacher.labels() or []
    for model in models:
        trained_on = [model.entry("flags", flag) for flag in ("text_column", "text_pair_column")]
        if trained_on[0] and bool(trained_on[1]) != bool(options.text_pair_column):
            kind = "pairs of texts" if trained_on[1] else "single texts"
            warn(f"the model was trained on {kind}", at=str(model))
    return CustomDataset(paths, options, labels, problem_type)


def _target_names(folder: RunFolder) -> list[str]:
    """Returns the names of the targets of a regression; [] if there is only one."""
    # Hugging Face's models also name a single target.
    names = folder.labels() or []
    return names if len(names) > 1 else []


def trained_problem_type(folder: RunFolder) -> str | None:
    """Returns the problem type of the model in a folder; None if it is unknown."""
    # Version 1.0 stored the inferred type as the flag.
    found = folder.entry(PROBLEM_TYPE) or folder.entry("flags", "problem_type")
    return None if found == AUTO else found


def resumed_folders(options: ClassifierOptions) -> list[RunFolder]:
    """Returns the folders of the runs to resume: with `--num_runs`, there may be several."""
    output = RunFolder(options.output_dir or "")
    folders = output.subfolders(options.num_runs) if options.num_runs > 1 else [output]
    return [folder for folder in folders if folder.will_be_resumed_by(options)]


def scale_entry(options: ClassifierOptions, data: TextDataset) -> dict[str, str]:
    """Returns an entry for `run.json` with [mean, standard deviation] of each target.

    It is empty if a new head can learn the numbers as they are. A run that resumes or has a teacher
    copies the entry of that model, if any. So does a run that starts from a model for the same
    targets, because it keeps that model's head.
    """
    models = resumed_folders(options)
    if options.teacher:
        models.append(RunFolder(options.teacher))
    if models:
        saved = models[0].entry(TARGET_SCALE)
        return {TARGET_SCALE: saved} if saved else {}
    labels = np.array([example.label for example in data.read("train")], np.float64)
    targets = labels.reshape(len(labels), -1)  # [E, L]
    start = formats.find_source(options.init_checkpoint).run if options.init_checkpoint else None
    names, pairs = _target_names(start) if start else [], []
    if start and trained_problem_type(start) == REGRESSION and {*names} == {*data.labels}:
        pairs = json.loads(start.entry(TARGET_SCALE) or "[]")
        pairs = [pairs[names.index(name)] for name in data.labels if pairs] or pairs
        mean, scale = np.transpose(pairs or [(0.0, 1.0)])
        if _standardize((targets - mean) / scale):
            limits = f"numbers from {targets.min():g} to {targets.max():g}"
            problem = f"{limits} have another unit than those of {options.init_checkpoint}"
            advice = "Start with a new head: convert_checkpoint.py --head=encoder"
            warn(problem, at=data.describe("train"), fix=advice)
    pairs = pairs or _standardize(targets)
    if not pairs:
        return {}
    if exceeds_float32(pairs):
        problem = "numbers differ too little for the float32 of exported and converted models"
        warn(problem, at=data.describe("train"))
    scales = ", ".join(f"(x - {mean:g}) / {scale:g}" for mean, scale in pairs)
    note(f"Numbers are standardized for training, and losses are those of the results: {scales}")
    return {TARGET_SCALE: json.dumps(pairs)}


def _standardize(targets: np.ndarray) -> list[list[float]]:
    """Returns [mean, deviation] of each of the targets [E, L]; [] if they suit a new head."""
    sizes = np.abs(targets).max(axis=0)
    units = np.where(sizes > 0, sizes, 1.0)  # without this division, squares might overflow
    means, deviations = (targets / units).mean(axis=0), (targets / units).std(axis=0)
    # The deviation of a constant is 0, except for rounding errors.
    scales = np.where(deviations > 1e-12, units * deviations, 1.0)
    fits = sizes.max() <= _MAX_TARGET and scales.min() >= _MIN_DEVIATION
    return [] if fits else np.stack([units * means, scales], axis=1).tolist()


def exceeds_float32(pairs: list[list[float]]) -> bool:
    """Returns whether float32 is too coarse for targets with these [mean, deviation] pairs."""
    mean, deviation = np.abs(np.transpose(pairs or [(0.0, 1.0)]))
    return not (np.spacing(mean.astype(np.float32)) <= 0.01 * deviation).all()


def _require_order(labels: Sequence[str], folder: RunFolder) -> None:
    """Raises a UserError if a model has the labels of a published task in a different order.

    Without this check, the only symptom would be bad metrics, for example of Hugging Face's MNLI
    models. Only warns if the names differ, because they may still mean the same labels.
    """
    model_labels = folder.declared_labels() or []
    expected, actual = ([str(x).casefold() for x in names] for names in (labels, model_labels))
    outputs, wanted = ", ".join(model_labels), ", ".join(labels)
    if expected != actual and sorted(expected) == sorted(actual):
        problem = f"the model's outputs are {outputs}, but the task's labels are {wanted}"
        advice = "Pass --task_name=tsv, which takes the order from the model"
        raise UserError(problem, at=str(folder), fix=advice)
    # A different number of outputs raises an error when the weights are loaded.
    if model_labels and expected != actual and len(expected) == len(actual):
        warn(f"the model names its outputs {outputs}: are they {wanted}?", at=str(folder))
