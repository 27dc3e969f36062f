"""Which set of texts the options of `run_classifier.py` mean."""

import os

from bert_tf import files
from bert_tf.data import glue
from bert_tf.data.column_mapping import ColumnMapping
from bert_tf.data.custom_dataset import CustomDataset
from bert_tf.data.datasets import REGRESSION, GlueDataset, TextDataset
from bert_tf.data.split_files import find_files
from bert_tf.data.task_module import load_task_module
from bert_tf.errors import UserError
from bert_tf.options import ClassifierOptions
from bert_tf.tasks import labels, model_folder


def of_files(options: ClassifierOptions) -> TextDataset:
    """The set, with what its files say: a user's own training file is read here.

    Raises:
        UserError: there is no such task, or a file is missing or not right.
    """
    data = _custom_dataset(options, _paths(options)) if options.is_own_tables else _other(options)
    if not data.is_published:
        labels.require_same(data.labels, _source_of_labels(options, data), options)
    elif not options.do_train:
        labels.require_order(data.labels, options)
    if options.glue_submission and not data.submission:
        raise UserError(f"--glue_submission: {data.name} is none of GLUE")
    return data


def _source_of_labels(options: ClassifierOptions, data: TextDataset) -> str:
    if options.task_module or options.labels:
        return options.task_module or "--labels"
    return data.describe("train") if options.do_train else data.name


def of_checkpoint(options: ClassifierOptions) -> TextDataset:
    """The set, with what is known without its files: for a model that is to be asked.

    Raises:
        UserError: there is no such task, or the labels of the model are not known.
    """
    if options.task_module:
        # The file need not be there any more.
        problem_type = _trained_type(options)
        names = [] if problem_type == REGRESSION else labels.of_checkpoint(options)
        data = CustomDataset({}, ColumnMapping(text=""), problem_type=problem_type, labels=names)
        # The module may not be there any more to say it.
        data.has_pairs = None
        return data
    return _custom_dataset(options, {}) if options.is_own_tables else _other(options)


def _other(options: ClassifierOptions) -> TextDataset:
    data_dir = options.data_dir or ""
    if options.task_module:
        return load_task_module(options.task_module, data_dir)
    return GlueDataset(glue.task_named(options.task_name or ""), data_dir)


def _paths(options: ClassifierOptions) -> dict[str, str]:
    """The files that are needed: to evaluate on, if there is no dev file, a part of the others."""
    named = (options.data_dir or "", options.train_file, options.eval_file, options.predict_file)
    # Without a dev file the training leaves rows out, whether this run evaluates or not.
    learns = options.do_train or options.evaluates
    found = find_files(*named, splits=["eval"] * learns)
    wanted = {
        "train": options.do_train or (options.evaluates and "eval" not in found),
        "eval": learns,
        "predict": options.do_predict,
    }
    found = find_files(*named, splits=[split for split, needed in wanted.items() if needed])
    for split, needed in wanted.items():
        if needed and split not in found and split != "eval":
            there = files.describe_absence(os.path.join(options.data_dir or ".", "*"))
            raise UserError(
                f"There is no file to {split} on: pass --{split}_file, or put {_EXPECTED[split]} "
                f"into --data_dir ({there})"
            )
    return {split: found[split] for split, needed in wanted.items() if needed and split in found}


_EXPECTED = {"train": "train.tsv (or .csv, .jsonl)", "predict": "test.tsv (or .csv, .jsonl)"}


def _custom_dataset(options: ClassifierOptions, paths: dict[str, str]) -> CustomDataset:
    problem_type = options.problem_type
    names = options.labels.split(",") if options.labels else None
    if not options.do_train:
        problem_type = _trained_type(options)
        if names is None and problem_type != REGRESSION:
            names = labels.of_checkpoint(options)
    return CustomDataset(
        paths,
        ColumnMapping(
            text=options.text_column or "",
            text_pair=options.text_pair_column,
            label=options.label_column,
            id=options.id_column,
            has_header=options.has_header,
            quoted=options.quoted,
        ),
        problem_type=problem_type,
        labels=names,
        label_separator=options.label_separator,
        dev_fraction=options.dev_fraction,
    )


def _trained_type(options: ClassifierOptions) -> str:
    """The problem type of the model that is evaluated or predicts."""
    if options.problem_type != "auto":
        return options.problem_type
    folder = labels.folder_of_checkpoint(options)
    # Trained by something else: one label for each text is what most have.
    return model_folder.hint(folder, "flags", "problem_type") or "classification"
