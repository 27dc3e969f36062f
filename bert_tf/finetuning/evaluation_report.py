"""Writes the report of an evaluation: what the run knows, and what the task says about the rows."""

import dataclasses
import os
import platform
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import note
from bert_tf.checkpoints.run_folder import RUNS, RunFolder
from bert_tf.finetuning.records import Splits
from bert_tf.finetuning.task import Written
from bert_tf.options import registry
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.report.page import Data, evaluation_page, summary_page
from bert_tf.runs import output_dir
from bert_tf.runs.training_run import TrainingRun
from bert_tf.training import Devices
from bert_tf.training.evaluation import plain_metrics

REPORT, EVAL_PREDICTIONS = "report.html", "eval_predictions.tsv"
_COUNTS = {
    "records": "model inputs",
    "cut_examples": "truncated rows",
    "cut_tokens": "tokens cut off",
    "tokens": "tokens",
    "unknown_tokens": "unknown tokens ([UNK])",
}


def write_report(
    run: TrainingRun,
    splits: Splits,
    report: EvaluationReport,
    metrics: Mapping[str, Any],
    suffix: str,
    seconds: Mapping[str, float],
) -> Sequence[str]:
    """Writes both files to `output_dir`, with `suffix` in their names; returns the paths.

    `seconds` says how long the parts of the run took.
    """
    options, size = run.options, f"{run.model.count_params():,} parameters"
    model = f"{run.restored or options.init_checkpoint or 'random weights'}: {size}"
    times = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    about = {**_describe_run(options, run.devices), "model": model, "seconds": times}
    data = [_count(splits, split) for split in ("train", "eval") if split in splits.stats]
    title, plain = f"Evaluation: {_name(run.folder)}", plain_metrics(metrics)
    about["step"] = f"{plain.pop('global_step'):,}"
    plain = {name: plain[name] for name in metrics if name in plain}  # the task's order
    table = os.path.basename(output_dir.result_path("", EVAL_PREDICTIONS, suffix))
    epoch = None
    if options.do_train:
        epoch = splits.task.epoch_size(splits.examples("train")) / options.train_batch_size
    args = title, about, data, run.folder, epoch, plain, report, table
    contents = {REPORT: evaluation_page(*args)}
    if len(report):
        contents[EVAL_PREDICTIONS] = report.table()
    # JSON can express half of a character, which UTF-8 cannot.
    contents = {n: text.encode("utf-8", "replace").decode() for n, text in contents.items()}
    paths = output_dir.write_results(
        run.folder.path, suffix, lambda folder: Written(files.write_texts(folder, contents))
    ).paths
    note(f"Report: {', '.join(paths)}")
    return paths


def write_summary_report(options: Any, devices: Devices) -> str:
    """Writes the report of runs with several seeds; returns its path."""
    folder = RunFolder(options.output_dir or "")
    title, path = f"Runs: {_name(folder)}", folder.file(REPORT)
    about, summary = _describe_run(options, devices), files.read_json(folder.file(RUNS))
    files.write_text(path, summary_page(title, about, summary))
    note(f"Report: {path}")
    return path


def _name(folder: RunFolder) -> str:
    return os.path.basename(os.path.abspath(folder.path))


def _describe_run(options: Any, devices: Devices) -> dict[str, str]:
    """Returns command, versions and devices, by description."""
    fields = [(f.name, getattr(options, f.name), f.default) for f in dataclasses.fields(options)]
    flags = [f"--{name}={shlex.quote(str(x))}" for name, x, default in fields if x != default]
    modules = ("bert_tf", "tensorflow", "keras", "numpy")
    versions = [f"{name} {import_module(name).__version__}" for name in modules]
    name = registry.script_of(type(options))
    script = f"python {name}.py" if name in registry.SCRIPTS else name
    return {
        "command": " \\\n".join([script, *flags]),
        "versions": ", ".join([*versions, f"python {platform.python_version()}"]),
        "devices": f"{devices.description}, {devices.precision}",
        "machine": platform.platform(),
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _count(splits: Splits, split: str) -> Data:
    stats, hashes = splits.stats[split], splits.hashes(split)
    # Records of an older version lack some of them.
    counts = {"rows": len(hashes)}
    counts |= {text: stats[key] for key, text in _COUNTS.items() if key in stats}
    counts["repeated texts"] = len(hashes) - len(np.unique(hashes))
    if split == "eval" and "train" in splits.stats:
        shared = np.isin(hashes, splits.hashes("train"))
        counts["texts that are also in the training data"] = int(shared.sum())
    labels = (getattr(example, "label", None) for example in splits.examples(split))
    names = (label if isinstance(label, tuple) else (label,) for label in labels)
    by_label = Counter(str(name) for row in names for name in row)
    known = splits.task.schema.labels
    counts |= {f"label {name}": by_label[name] for name in known if name in by_label}
    name = {"train": "training", "eval": "evaluation"}[split]
    return Data(name, counts, splits.records(split)[2].counts, splits.problems[split])
