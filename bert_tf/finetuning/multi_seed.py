"""Several runs that differ in their seed: mean and deviation of their metrics."""

import json
import os
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.finetuning.output_dir import Results
from bert_tf.progress import log
from bert_tf.training.evaluation import plain_metrics

RUNS = "runs.json"


def run_names(count: int) -> list[str]:
    """Returns the names of the folders of the runs."""
    return [f"run_{number}" for number in range(1, count + 1)]


def summarize_runs(runs: Sequence[Results], seeds: Sequence[int], best_run: int) -> dict:
    """Returns mean and deviation of each metric over at least one run.

    Args:
        runs: the results.
        seeds: random seeds of the runs.
        best_run: index of the best run.

    Returns:
        `mean`, `deviation` (of a sample: by N - 1; 0 for one run), `best` and `runs`.
    """
    metrics = [plain_metrics(run.metrics) for run in runs]
    columns = {name: [float(one[name]) for one in metrics] for name in metrics[0]}
    names = run_names(len(runs))
    listed = [
        {"folder": name, "random_seed": seed, **one}
        for name, seed, one in zip(names, seeds, metrics, strict=True)
    ]
    deviation = {
        name: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        for name, values in columns.items()
    }
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "deviation": deviation,
        "best": listed[best_run],
        "runs": listed,
    }


def write_summary(
    output_dir: str, runs: Sequence[Results], seeds: Sequence[int], best_run: int
) -> Results:
    """Writes and logs the summary of the runs; returns the means and the file."""
    summary = summarize_runs(runs, seeds, best_run)
    if not any(run.get("eval_matthews", 1) for run in summary["runs"]):
        log.warning(
            "In all %d runs eval_matthews is 0: they predict one label only. Check the labels, and "
            "try a lower --learning_rate or more steps",
            len(runs),
        )
    path = os.path.join(output_dir, RUNS)
    files.write_text(path, json.dumps(summary, indent=1) + "\n")
    for name, mean in summary["mean"].items():
        if name == "global_step":
            continue
        values = ", ".join(f"{run[name]:.4f}" for run in summary["runs"])
        log.info("%s: %.4f +- %.4f (%s)", name, mean, summary["deviation"][name], values)
    log.info("Best: %s. All metrics: %s", summary["best"]["folder"], path)
    return Results(metrics=summary["mean"], files=[path])
