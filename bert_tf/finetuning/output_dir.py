"""What a run leaves in `output_dir` beside checkpoints and predictions."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_tf import files, locks
from bert_tf.errors import UserError
from bert_tf.progress import Scalars, log

EVAL_RESULTS = "eval_results.txt"
# The same for programs; the original has no such file.
EVAL_RESULTS_JSON = "eval_results.json"
EVAL_FILES = (EVAL_RESULTS, EVAL_RESULTS_JSON)
# Where the original's evaluation writes its curves.
EVAL_FOLDER = "eval"
# What the original's `eval_results.txt` of a classifier has.
_FIRST = ("eval_accuracy", "eval_loss", "global_step", "loss")


@dataclasses.dataclass
class Results:
    """What a run gave.

    Attributes:
        metrics: figures of the evaluation, as in `eval_results.txt`; empty without one.
        files: paths of the results that were written.
    """

    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    files: list[str] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def reserved(options: Any, is_chief: bool) -> Iterator[None]:
    """Keeps other trainings out of `output_dir`; evaluations and predictions may go on beside one.

    Raises:
        UserError: another training uses it, or its rights would not let it be written to.
    """
    output_dir = options.output_dir or ""
    folder = os.path.abspath(output_dir)
    while not os.path.exists(folder) and not files.is_remote(output_dir):
        folder = os.path.dirname(folder)
    if is_chief and os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(
            f"--output_dir={output_dir} cannot be written to: {folder} is somebody else's, or "
            "read-only. Choose another one"
        )
    if is_chief and os.path.isfile(folder):
        raise UserError(f"--output_dir={output_dir} cannot be a folder: {folder} is a file")
    lock = locks.exclusive(os.path.join(output_dir, ".lock"), f"--output_dir={output_dir}")
    with lock if is_chief and options.do_train else contextlib.nullcontext():
        yield


def prepare_output_dir(
    output_dir: str, names: Iterable[str] = (), folders: Iterable[str] = ()
) -> None:
    """Makes the folder, and sees now rather than after the training that it can be written to.

    Args:
        output_dir: the folder.
        names: of files that will be written.
        folders: names of folders in it that will be written to, beside that for curves.

    Raises:
        UserError: it cannot, or something else has the name of a file or a folder.
    """
    files.make_dirs(output_dir)
    for name in (EVAL_FOLDER, *folders):
        path = os.path.join(output_dir, name)
        if files.exists(path) and not files.is_dir(path):
            raise UserError(f"{path} is a file, in place of a folder that will be written to")
    for name in (*names, *EVAL_FILES):
        if files.is_dir(os.path.join(output_dir, name)):
            raise UserError(f"{os.path.join(output_dir, name)} is a folder, in place of a file")
    probe = os.path.join(output_dir, ".bert_tf")
    files.write_text(probe, "")
    files.remove(probe)


def result_path(output_dir: str, name: str, suffix: str) -> str:
    """Path of a file of results, with a suffix before the extension."""
    stem, extension = os.path.splitext(name)
    return os.path.join(output_dir, f"{stem}{suffix}{extension}")


def plain_figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Figures for JSON, in the shortest digits that tell a float32 from others."""
    return {
        key: value if isinstance(value, int) else float(str(value))
        for key, value in sorted(metrics.items())
    }


def write_metrics(
    output_dir: str,
    metrics: Mapping[str, Any],
    step: int,
    examples: int,
    more: Mapping[str, Any] | None = None,
    suffix: str = "",
) -> str:
    """Writes the figures of an evaluation to `eval_results.txt`, as JSON, and as curves.

    Args:
        output_dir: the folder.
        metrics: the figures. The lines that the original writes for a classifier come first.
        step: that the model is at.
        examples: how many were evaluated.
        more: what only the JSON file gets.
        suffix: of the names of the files.

    Returns:
        Path of the file.
    """
    first = _FIRST if "eval_loss" in metrics else ()
    # str and not a format: it gives the shortest digits that tell the float32 from others.
    names = sorted(metrics, key=lambda name: (name not in first, name))
    lines = [f"{name} = {metrics[name]!s}" for name in names]
    log.info("Evaluation of %d examples: %s", examples, ", ".join(lines))
    path = result_path(output_dir, EVAL_RESULTS, suffix)
    files.write_text(path, "\n".join(lines) + "\n")
    text = json.dumps({**plain_figures(metrics), **(more or {})}, indent=1) + "\n"
    files.write_text(result_path(output_dir, EVAL_RESULTS_JSON, suffix), text)
    with contextlib.closing(Scalars(result_path(output_dir, EVAL_FOLDER, suffix))) as scalars:
        curves = {key: float(value) for key, value in metrics.items() if key != "global_step"}
        scalars.write(step, curves)
    return path
