"""Summarizes the metrics of runs that differ only in their random seed."""

import json
import os
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.finetuning.output_dir import Results
from bert_tf.finetuning.run_metadata import run_names
from bert_tf.options.fine_tuning import RUNS
from bert_tf.progress import log
from bert_tf.training.evaluation import plain_metrics


def summarize_runs(runs: Sequence[Results], seeds: Sequence[int], best_run: int) -> dict:
    """Summarizes the metrics of at least one run.

    Returns:
        `mean` and `deviation` (sample standard deviation; 0 for one run) of each metric; `runs`,
        with the folder, seed and metrics of each run; and `best`, the entry of the best run.
    """
    metrics = [plain_metrics(run.metrics) for run in runs]
    run_entries = [
        {"folder": name, "random_seed": seed, **values}
        for name, seed, values in zip(run_names(len(runs)), seeds, metrics, strict=True)
    ]
    values = np.array([[float(value) for value in run.values()] for run in metrics])
    statistics = values.mean(axis=0), values.std(axis=0, ddof=min(len(runs) - 1, 1))
    mean, deviation = (dict(zip(metrics[0], row.tolist(), strict=True)) for row in statistics)
    best_entry = run_entries[best_run]
    return {"mean": mean, "deviation": deviation, "best": best_entry, "runs": run_entries}


def write_summary(
    output_dir: str, runs: Sequence[Results], seeds: Sequence[int], best_run: int
) -> Results:
    """Writes and logs the summary of the runs; returns the mean metrics and the file's path."""
    summary = summarize_runs(runs, seeds, best_run)
    # Matthews correlation is 0 if all predictions are equal. Other tasks lack this metric.
    if not any(run.get("eval_matthews", 1) for run in summary["runs"]):
        log.warning(
            "eval_matthews is 0: all %d runs predict only one label. Check the labels, or lower "
            "--learning_rate",
            len(runs),
        )
    path = os.path.join(output_dir, RUNS)
    files.write_text(path, json.dumps(summary, indent=1) + "\n")
    for name, mean in summary["mean"].items():
        if name == "global_step":
            continue
        values = ", ".join(f"{run[name]:.4f}" for run in summary["runs"])
        log.info("%s: %.4f +- %.4f (%s)", name, mean, summary["deviation"][name], values)
    log.info("Best run: %s. All metrics: %s", summary["best"]["folder"], path)
    return Results(metrics=summary["mean"], files=[path])
