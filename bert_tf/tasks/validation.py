"""What is seen of a training on its way: losses, evaluations, and the best weights so far."""

import contextlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf import checkpoint, files, training
from bert_tf.errors import UserError
from bert_tf.evaluation.plots import plot_training_curve
from bert_tf.progress import Scalars, log
from bert_tf.tasks import model_folder
from bert_tf.tasks.model_folder import BEST_FOLDER, BEST_NAME
from bert_tf.tasks.record_cache import fingerprint
from bert_tf.tasks.results import EVAL_FOLDER, plain_figures
from bert_tf.tasks.runner import Runner

EVALUATIONS = "evaluations.json"
CURVE = "training_curve.tsv"
CURVE_PICTURE = "training_curve.png"

# Of all other figures more is better.
_LESS_IS_BETTER = ("loss", "mean_absolute_error")
_HEADER = "step\tloss\tlearning_rate\n"


def best_figure(best_metric: str, known: Any) -> str:
    """The figure that `--best_metric` names, without `eval_`.

    Args:
        best_metric: a figure, or `auto`.
        known: those of the task, the usual one first.

    Raises:
        UserError: the task has no such figure.
    """
    name = best_metric.removeprefix("eval_")
    if name == "auto":
        return known[0]
    if name not in known:
        raise UserError(f"--best_metric must be one of {', '.join(known)}. Received: {best_metric}")
    return name


def figure_in(metrics: Mapping[str, Any], figure: str) -> float:
    """The value of a figure, whether its name begins with `eval_` or not.

    Where there are both, `eval_loss` is the mean over the examples, and the original's `loss` over
    the batches, the last of which may be a small one.
    """
    name = f"eval_{figure}"
    return float(metrics[name if name in metrics else figure])


def score_of(metrics: Mapping[str, Any], figure: str) -> float:
    """A number that is higher for what is better by a figure; what is none is the worst."""
    value = figure_in(metrics, figure)
    value = -value if figure in _LESS_IS_BETTER else value
    return -math.inf if math.isnan(value) else value


class Validation(training.Observer):
    """Keeps the losses of a training, evaluates it, keeps the best weights, and may end it.

    What an earlier run of the same training has found counts.

    Args:
        runner: the run; its options say how often to evaluate.
        every: steps between two evaluations; None for none.
        first_step: of the training that goes on.
        beside_best: what has to lie beside the best weights to use them: texts by names of files.
    """

    def __init__(
        self, runner: Runner, every: int | None, first_step: int, beside_best: Mapping[str, str]
    ) -> None:
        self._runner = runner
        self._every = every
        self._beside_best = beside_best
        self._folder = runner.output_dir
        self._patience = runner.options.early_stopping_patience
        self._figure = best_figure(runner.options.best_metric, runner.task.best_metrics)
        self._rows = _read_curve(os.path.join(self._folder, CURVE), first_step)
        self._data = ""
        self._evaluations: list[dict[str, Any]] = []
        if every:
            examples = runner.examples[runner.task.evaluation_split]
            self._data = fingerprint(examples=examples)
            self._evaluations = self._read_evaluations(first_step)

    @property
    def digest(self) -> int:
        """A number for what earlier runs have found, to compare processes by."""
        return zlib.crc32(json.dumps(self._evaluations, sort_keys=True).encode())

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation so far; of several, the first."""
        found = self._evaluations
        return max(found, key=lambda e: score_of(e, self._figure)) if found else None

    @property
    def has_lost_patience(self) -> bool:
        """Whether so many evaluations as `early_stopping_patience` says were no better."""
        if not self._patience or not self.best:
            return False
        return len(self._evaluations) - 1 - self._evaluations.index(self.best) >= self._patience

    def on_step(self, step: int, figures: Mapping[str, float]) -> None:
        """Remembers the loss."""
        self._rows.append((step, figures["loss"], figures["learning_rate"]))

    def on_checkpoint(self) -> None:
        """Writes the losses so far: what goes on from the checkpoint goes on with them."""
        self._write_table()

    def is_due(self, step: int, last: bool) -> bool:
        """Every so many steps and at the last; not where an earlier run has done it."""
        due = bool(self._every) and (last or step % (self._every or 1) == 0)
        return due and all(evaluation["step"] != step for evaluation in self._evaluations)

    def evaluate(self, step: int) -> bool:
        """Measures the model, keeps it if it is the best; whether patience is at its end."""
        metrics, _ = self._runner.measure()
        found = {"step": step, **plain_figures(metrics)}
        self._evaluations.append(found)
        is_best = self.best is found
        if self._runner.is_chief:
            if is_best:
                self._keep_best(step)
            self._write_evaluations()
            with contextlib.closing(Scalars(os.path.join(self._folder, EVAL_FOLDER))) as scalars:
                scalars.write(step, {name: float(value) for name, value in metrics.items()})
        best = self.best or found
        compared = f"best {self._value(best):.4f} at step {best['step']}"
        shown = "the best so far" if is_best else compared
        log.info(
            "Evaluation at step %d: %s = %.4f (%s)", step, self._figure, self._value(found), shown
        )
        if self.has_lost_patience:
            log.info("The training ends: %d evaluations in a row were no better", self._patience)
        return self.has_lost_patience

    def write_curve(self) -> list[str]:
        """Writes losses and evaluations so far as a table and as a picture; paths of both.

        Raises:
            UserError: they cannot be written.
        """
        if not self._rows:
            return []
        paths = [self._write_table(), os.path.join(self._folder, CURVE_PICTURE)]
        steps, losses, _ = zip(*self._rows, strict=True)
        found = self._evaluations
        points = {
            self._figure: [(e["step"], self._value(e)) for e in found],
            "eval_loss": [(e["step"], e["eval_loss"]) for e in found if "eval_loss" in e],
        }
        evaluations = {name: places for name, places in points.items() if places}
        files.write_bytes(paths[1], plot_training_curve(steps, losses, evaluations))
        return paths

    def _write_table(self) -> str:
        lines = [f"{step}\t{loss:.6g}\t{rate:.6g}\n" for step, loss, rate in self._rows]
        path = os.path.join(self._folder, CURVE)
        files.write_text(path, _HEADER + "".join(lines))
        return path

    def _value(self, evaluation: Mapping[str, Any]) -> float:
        return figure_in(evaluation, self._figure)

    def _keep_best(self, step: int) -> None:
        folder = os.path.join(self._folder, BEST_FOLDER)
        files.make_dirs(folder)
        variables = checkpoint.named_variables(self._runner.model)
        values = {name: variable.value for name, variable in variables.items()}
        prefix = os.path.join(folder, BEST_NAME)
        checkpoint.write(prefix, {**values, checkpoint.GLOBAL_STEP: np.int64(step)})
        checkpoint.add_newest(folder, BEST_NAME)
        model_folder.write(folder, self._beside_best)

    def _write_evaluations(self) -> None:
        found = {
            "figure": self._figure,
            "examples": self._data,
            "best": self.best,
            "evaluations": self._evaluations,
        }
        path = os.path.join(self._folder, EVALUATIONS)
        files.write_text(path, json.dumps(found, indent=1) + "\n")

    def _read_evaluations(self, first_step: int) -> list[dict[str, Any]]:
        """The evaluations of an earlier run, up to the step that this one begins from."""
        path = os.path.join(self._folder, EVALUATIONS)
        if not first_step or not files.exists(path):
            return []
        try:
            found = json.loads(files.read_text(path))
            earlier = [dict(e) for e in found["evaluations"] if e["step"] <= first_step]
            others = {
                f"they were of the figure {found['figure']}": found["figure"] != self._figure,
                "they were of other examples": found["examples"] != self._data,
                f"{BEST_FOLDER} is gone": not checkpoint.latest(
                    os.path.join(self._folder, BEST_FOLDER)
                ),
            }
        except (UserError, ValueError, KeyError, TypeError):
            others, earlier = {"the file is damaged": True}, []
        reasons = [reason for reason, applies in others.items() if applies]
        if not reasons:
            return earlier
        log.warning(
            "The evaluations in %s do not count any more (%s): the best weights are looked for "
            "from here on",
            path,
            reasons[0],
        )
        return []


def _read_curve(path: str, last_step: int) -> list[tuple[int, float, float]]:
    """Step, loss and rate of an earlier run, up to a step."""
    if not last_step or not files.exists(path):
        return []
    try:
        rows = [line.split("\t") for line in files.read_lines(path)][1:]
        found = [(int(step), float(loss), float(rate)) for step, loss, rate in rows]
    except (UserError, ValueError):
        return []
    return [row for row in found if row[0] <= last_step]
