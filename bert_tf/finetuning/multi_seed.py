"""Several trainings that differ in their seed: what their figures are together."""

import json
import os
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.finetuning.output_dir import Results, plain_figures
from bert_tf.progress import log

RUNS = "runs.json"


def run_names(count: int) -> list[str]:
    """The folders of the runs."""
    return [f"run_{number}" for number in range(1, count + 1)]


def summarize_runs(runs: Sequence[Results], seeds: Sequence[int], best_run: int) -> dict:
    """Mean and deviation of each figure over runs.

    Args:
        runs: at least one.
        seeds: of the runs.
        best_run: which of them was the best.

    Returns:
        For JSON: `mean`, `deviation` (of a sample: by N - 1; 0 for one run), `best` and `runs`.
    """
    figures = [plain_figures(run.metrics) for run in runs]
    columns = {name: [float(found[name]) for found in figures] for name in figures[0]}
    names = run_names(len(runs))
    listed = [
        {"folder": name, "random_seed": seed, **found}
        for name, seed, found in zip(names, seeds, figures, strict=True)
    ]
    spread = {
        name: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        for name, values in columns.items()
    }
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "deviation": spread,
        "best": listed[best_run],
        "runs": listed,
    }


def write_summary(
    output_dir: str, runs: Sequence[Results], seeds: Sequence[int], best_run: int
) -> Results:
    """Writes `runs.json` and says what is in it.

    Returns:
        The means, and the file.

    Raises:
        UserError: it cannot be written.
    """
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
    log.info("Best: %s. All figures: %s", summary["best"]["folder"], path)
    return Results(metrics=summary["mean"], files=[path])
