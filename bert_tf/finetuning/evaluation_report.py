"""Writes the report of an evaluation: what the run knows, and what the task says about the rows."""

import dataclasses
import os
import platform
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import files, registry
from bert_tf.checkpoints.run_folder import RUNS, RunFolder
from bert_tf.finetuning.records import Splits
from bert_tf.finetuning.task import Written
from bert_tf.options import FineTuningOptions
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.report.page import Data, evaluation_page, summary_page
from bert_tf.runs import output_dir
from bert_tf.training import Devices
from bert_tf.training.evaluation import plain_metrics

REPORT, EVAL_PREDICTIONS = "report.html", "eval_predictions.tsv"


def write_report(
    report: EvaluationReport,
    run: Mapping[str, Any],
    splits: Splits,
    options: FineTuningOptions,
    metrics: Mapping[str, Any],
    suffix: str,
) -> Sequence[str]:
    """Writes both files to `output_dir`, with `suffix` in their names; returns the paths."""
    folder = options.output_dir or ""
    data = [_describe(splits, split) for split in ("train", "eval") if split in splits.stats]
    title = f"Evaluation: {os.path.basename(os.path.abspath(folder))}"
    page = evaluation_page(title, run, data, RunFolder(folder), plain_metrics(metrics), report)
    contents = {REPORT: page, **({EVAL_PREDICTIONS: report.table()} if len(report) else {})}

    def write(folder: str) -> Written:
        return Written(files.write_texts(folder, contents))

    return output_dir.write_results(folder, suffix, write).paths


def write_summary_report(options: FineTuningOptions, devices: Devices) -> str:
    """Writes the report of runs with several seeds; returns its path."""
    folder = RunFolder(options.output_dir or "")
    title = f"{options.num_runs} runs: {os.path.basename(os.path.abspath(folder.path))}"
    run = describe_run(options, devices)
    page = summary_page(title, run, files.read_json(folder.file(RUNS)))
    files.write_text(folder.file(REPORT), page)
    return folder.file(REPORT)


def describe_run(options: FineTuningOptions, devices: Devices, **more: Any) -> dict[str, Any]:
    """Returns command, versions and devices, and `more`, by description."""
    flags = [
        f"--{field.name}={shlex.quote(str(getattr(options, field.name)))}"
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    ]
    versions = {"bert_tf": bert_tf, "TensorFlow": tf, "Keras": keras, "NumPy": np}
    return {
        "command": " ".join([f"{registry.script_of(type(options))}.py", *flags]),
        "versions": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {module.__version__}" for name, module in versions.items()]
        ),
        "devices": f"{devices.description}, {devices.precision}",
        "machine": platform.platform(),
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        **more,
    }


def _describe(splits: Splits, split: str) -> Data:
    """Returns counts, lengths and labels of a split."""
    lengths, stats, hashes = splits.records(split)[2], splits.stats[split], splits.hashes(split)
    counts: dict[str, Any] = {
        "rows": stats["examples"],
        "windows": stats["records"],
        "truncated rows": stats["cut_examples"],
        "truncated tokens": stats["cut_tokens"],
        "tokens": stats["tokens"],
    }
    if "unknown_tokens" in stats:  # otherwise, an older version wrote the records
        counts["unknown tokens, [UNK]"] = stats["unknown_tokens"]
    counts["repeated rows"] = len(hashes) - len(np.unique(hashes))
    if split == "eval" and "train" in splits.stats:
        shared = np.isin(hashes, splits.hashes("train"))
        counts["rows that are also training rows"] = int(shared.sum())
    name = "training" if split == "train" else "evaluation"
    labels = Counter(label for example in splits.examples(split) for label in _labels_of(example))
    return Data(
        name=name,
        counts=counts,
        lengths=lengths.counts,
        labels=labels,
        problems=splits.problems.get(split, ()),
    )


def _labels_of(example: Any) -> Sequence[str]:
    """Returns the labels of an example that has text labels in an attribute `label`; or ()."""
    label = getattr(example, "label", None)
    labels = label if isinstance(label, tuple) else (label,)
    return [x for x in labels if isinstance(x, str)]
