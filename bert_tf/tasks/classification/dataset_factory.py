"""Makes the data set that the options of `run_classifier.py` describe."""

import os
import re

from bert_tf import files
from bert_tf.data.split_files import find_files
from bert_tf.errors import UserError
from bert_tf.finetuning import label_map, run_metadata
from bert_tf.options import ClassifierOptions
from bert_tf.progress import log
from bert_tf.tasks.classification import glue
from bert_tf.tasks.classification.column_mapping import ColumnMapping
from bert_tf.tasks.classification.custom_dataset import CustomDataset
from bert_tf.tasks.classification.datasets import REGRESSION, GlueDataset, TextDataset
from bert_tf.tasks.classification.task_module import load_task_module


def make_dataset(options: ClassifierOptions) -> TextDataset:
    """Returns the data set; infers labels and problem type from a custom training file.

    Without `do_train`, `do_eval` and `do_predict`, as for a `Predictor`, no data are read.

    Raises:
        UserError: there is no such task, a file is missing or invalid, or the labels of the model
            are unknown.
    """
    reads_data = options.do_train or options.evaluates or options.do_predict
    if options.task_module and not reads_data:
        return _module_of_checkpoint(options)
    data = _custom_dataset(options, _paths(options)) if options.is_own_tables else _other(options)
    if not data.is_published:
        label_map.require_same(data.labels, _source_of_labels(options, data), options)
    elif not options.do_train:
        label_map.require_order(data.labels, options)
    if options.glue_submission and not data.submission:
        raise UserError(f"--glue_submission: {data.name} is none of GLUE")
    return data


def _source_of_labels(options: ClassifierOptions, data: TextDataset) -> str:
    if options.task_module or options.labels:
        return options.task_module or "--labels"
    return data.describe("train") if options.do_train else data.name


def _module_of_checkpoint(options: ClassifierOptions) -> TextDataset:
    """Returns the data set of a `--task_module` whose file need not exist any more."""
    problem_type = _trained_type(options)
    names = [] if problem_type == REGRESSION else label_map.of_checkpoint(options)
    data = CustomDataset({}, ColumnMapping(text=""), problem_type=problem_type, labels=names)
    # Only the module knows.
    data.has_pairs = None
    return data


def _other(options: ClassifierOptions) -> TextDataset:
    data_dir = options.data_dir or ""
    if options.task_module:
        return load_task_module(options.task_module, data_dir)
    return GlueDataset(glue.task_named(options.task_name or ""), data_dir)


def _paths(options: ClassifierOptions) -> dict[str, str]:
    """Returns the files to read by split; without a dev file, part of the training file is kept."""
    named = (options.data_dir or "", options.train_file, options.eval_file, options.predict_file)
    # Without a dev file a training leaves rows out, whether this run evaluates or not.
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
        _check_columns(options, paths)
        if names is None and problem_type != REGRESSION:
            names = label_map.of_checkpoint(options)
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
    """Returns the problem type of the model that is evaluated or predicts."""
    folder, asked = label_map.folder_of_checkpoint(options), options.problem_type
    trained = run_metadata.hint(folder, "flags", "problem_type")
    if "auto" not in (asked, trained or "auto") and asked != trained:
        raise UserError(
            f"--problem_type={asked}, but the model in {folder} was trained with "
            f"--problem_type={trained}: leave the flag out"
        )
    # The default for models that something else trained.
    return (trained or "classification") if asked == "auto" else asked


def _check_columns(options: ClassifierOptions, paths: dict[str, str]) -> None:
    """Warns of texts from other columns than those that the model was trained on."""
    folder, flags = label_map.folder_of_checkpoint(options), ("text_column", "text_pair_column")
    before = [run_metadata.hint(folder, "flags", flag) for flag in flags]
    now = [getattr(options, flag) for flag in flags]
    is_other = bool(before[1]) != bool(now[1])
    # Another file may have other names for its columns, or none.
    for path in paths.values() if not (now[0] or "").isdecimal() else ():
        cells = re.split(r'[\t,;"]', next(iter(files.read_lines(path)), ""))
        is_other |= before != now and {*filter(None, before)} <= {*map(str.strip, cells)}
    if paths and before[0] and is_other:
        shown = [" and ".join(filter(None, columns)) for columns in (before, now)]
        message = "%s: trained on column %s, asked with %s. Check --text_column, --text_pair_column"
        log.warning(message, folder, *shown)
