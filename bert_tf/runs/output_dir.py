"""The output directory of a run, and of several runs: lock, early checks, results, summary."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files, locks
from bert_tf.base.errors import counted, note, warn
from bert_tf.checkpoints.run_folder import EVAL_RESULTS_JSON, RUNS, RunFolder
from bert_tf.training.curve import Scalars
from bert_tf.training.evaluation import EVAL_FOLDER, plain_metrics

EVAL_RESULTS = "eval_results.txt"
EVAL_FILES = (EVAL_RESULTS, EVAL_RESULTS_JSON)
# Names of results of all tasks, and of GLUE's submission files.
_RESULTS = re.compile(
    r"(eval|test|nbest)_(results|predictions).*|predictions\..*|report\.html|export"
    r"|(label|entities)_test.*|predicted_.*|reranked\..*|null_odds\..*"
    r"|(AX|CoLA|MNLI-mm?|MRPC|[QW]NLI|QQP|RTE|SST-2|STS-B)\.tsv"
)
# Metrics that the original's classifier writes to `eval_results.txt`.
_ORIGINAL_METRICS = ("eval_accuracy", "eval_loss", "global_step", "loss")


@dataclasses.dataclass
class Results:
    """The metrics of a run's evaluation, if any, and the paths of the files that it wrote."""

    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: list[str] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def locked(folder: str, is_chief: bool, trains: bool) -> Iterator[None]:
    """Locks `output_dir` while training.

    Removes what earlier runs that were killed while writing left behind.
    """
    flag = f"--output_dir={folder}"
    is_locked, lock = is_chief and trains, os.path.join(folder, ".lock")
    with locks.exclusive(lock, flag) if is_locked else contextlib.nullcontext():
        if is_locked:
            files.remove_temporary(folder)
        yield


def warn_about_old_results(folder: str, written: Collection[str]) -> None:
    """Warns about results of an earlier model in a folder, which are not among the paths written.

    Call it after training.
    """
    renewed = {os.path.relpath(path, folder).split(os.sep)[0] for path in written}
    old = [name for name in files.list_dir(folder) if _RESULTS.fullmatch(name)]
    if old := [name for name in old if name not in renewed]:
        warn(f"{folder}: written before this training, and not renewed: {', '.join(sorted(old))}")


def result_path(output_dir: str, name: str, suffix: str) -> str:
    """Returns the path of a result file, with `suffix` before the extension.

    The suffix is `_<task>`. GLUE's submission files, such as `MRPC.tsv`, get no suffix: they are
    named after the task.
    """
    stem, extension = os.path.splitext(name)
    suffix = "" if suffix and "_" not in stem and suffix[1:] in stem.lower() else suffix
    return os.path.join(output_dir, f"{stem}{suffix}{extension}")


def write_results(output_dir: str, suffix: str, write: Callable[[str], Any]) -> Any:
    """Calls `write(folder)`, which returns a `Written`, and adds the suffix to its files."""
    if not suffix:
        return write(output_dir)
    paths = []
    with files.temporary_folder_at(os.path.join(output_dir, f".results{suffix}")) as folder:
        written = write(folder)
        for path in written.paths:
            paths.append(result_path(output_dir, os.path.basename(path), suffix))
            files.rename(path, paths[-1])
    return written._replace(paths=paths)


def write_metrics(
    output_dir: str,
    metrics: Mapping[str, Any],
    num_examples: int,
    extra: Mapping[str, Any] | None = None,
    suffix: str = "",
    main: Collection[str] = (),
    unit: str = "example",
) -> None:
    """Writes metrics to `eval_results.txt`, as JSON, and as curves for TensorBoard.

    `extra` has additional entries for the JSON file; `suffix` is added to the file names. Logs the
    metrics in `main` (names without `eval_`), by default all, of examples that are called `unit`.
    """
    # In tasks with a loss, the original's metrics come first, in the same order as in its file.
    first_names = _ORIGINAL_METRICS if "eval_loss" in metrics else ()
    names = sorted(metrics, key=lambda name: (name not in first_names, name))
    # `str` gives the shortest decimal that identifies a float32.
    lines = [f"{name} = {metrics[name]!s}" for name in names]
    plain = plain_metrics(metrics)
    logged = [n for n in names if n.removeprefix("eval_") in main and f"eval_{n}" not in names]
    rounded = ", ".join(f"{name} = {round(plain[name], 4)}" for name in logged or names)
    path = result_path(output_dir, EVAL_RESULTS, suffix)
    examples = counted(num_examples, unit)
    note(f"Evaluation of {examples}: {rounded}. All metrics: {path}")
    files.write_text(path, "\n".join(lines) + "\n")
    path = result_path(output_dir, EVAL_RESULTS_JSON, suffix)
    files.write_json(path, {**plain, **(extra or {})})
    with contextlib.closing(Scalars(result_path(output_dir, EVAL_FOLDER, suffix))) as scalars:
        curves = {key: float(value) for key, value in metrics.items() if key != "global_step"}
        scalars.write(metrics["global_step"], curves)


def write_summary(
    output_dir: str, runs: Sequence[Results], seeds: Sequence[int], best_run: int
) -> Results:
    """Writes `runs.json` and logs it; returns the mean of each metric and the file's path.

    The file has the `mean` and the sample standard `deviation` of each metric; `runs`, with the
    folder, seed and metrics of each of the runs, at least two; and `best`, the entry of the best.
    """
    metrics = [plain_metrics(run.metrics) for run in runs]
    table = np.array([[float(value) for value in values.values()] for values in metrics])
    mean = dict(zip(metrics[0], table.mean(axis=0).tolist(), strict=True))
    deviation = dict(zip(metrics[0], table.std(axis=0, ddof=1).tolist(), strict=True))
    names = [os.path.basename(str(run)) for run in RunFolder(output_dir).subfolders(len(runs))]
    entries = [
        {"folder": name, "random_seed": seed, **values}
        for name, seed, values in zip(names, seeds, metrics, strict=True)
    ]
    best = entries[best_run]
    summary = {"mean": mean, "deviation": deviation, "best": best, "runs": entries}
    path = os.path.join(output_dir, RUNS)
    files.write_json(path, summary)
    for name, column in zip(metrics[0], table.T, strict=True):
        if name != "global_step":
            values = ", ".join(f"{value:.4f}" for value in column)
            note(f"{name}: {mean[name]:.4f} +- {deviation[name]:.4f} ({values})")
    note(f"Best run: {best['folder']}. All metrics: {path}")
    return Results(metrics=mean, files=[path])
