"""Evaluation during training: keeps the best weights and stops early."""

import contextlib
import dataclasses
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoints
from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.checkpoints.run_folder import BEST_FOLDER, BEST_NAME
from bert_tf.training.curve import Points, Scalars

# Folder of the evaluation summaries for TensorBoard, as in the original BERT code.
EVAL_FOLDER = "eval"
EVALUATIONS = "evaluations.json"


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Converts metrics to numbers for JSON; float32 values get only as many digits as needed."""
    return {
        key: value if isinstance(value, int) else float(str(value))
        for key, value in sorted(metrics.items())
    }


class Monitor:
    """The metric that selects the best weights.

    Args:
        best_metric: its name; "auto" stands for the first of `monitors`.
        monitors: (name, whether lower is better) of the metrics to choose from.
    """

    def __init__(self, best_metric: str, monitors: Sequence[tuple[str, bool]]) -> None:
        lower_is_better = dict(monitors)
        name = best_metric.removeprefix("eval_")
        self.name = monitors[0][0] if name == "auto" else name
        if self.name not in lower_is_better:
            expected = f"--best_metric must be one of {', '.join(lower_is_better)}"
            raise UserError(f"{expected}. Received: {best_metric}")
        self._sign = -1.0 if lower_is_better[self.name] else 1.0

    def value(self, metrics: Mapping[str, Any]) -> float:
        """Returns the metric; prefers `eval_loss`, the mean over examples, to `loss`."""
        for name in (f"eval_{self.name}", self.name):
            if name in metrics:
                return float(metrics[name])
        raise UserError(f"metrics() must return {self.name}. Received: {', '.join(metrics)}")

    def score(self, metrics: Mapping[str, Any]) -> float:
        """Returns the metric, negated if lower is better, so that higher is better; NaN is -inf."""
        value = self._sign * self.value(metrics)
        return -math.inf if math.isnan(value) else value


@dataclasses.dataclass(kw_only=True, eq=False)
class EvalCallback:
    """Evaluates every `every` steps, keeps the best weights, and stops early.

    A resumed run also counts the evaluations of earlier runs, if they used the same examples.

    Attributes:
        compute_metrics: evaluates the model with its current weights.
        output_dir: the folder for `best`, `evaluations.json` and TensorBoard summaries.
        every: steps between evaluations.
        patience: number of evaluations without improvement before stopping; 0 to never stop early.
        initial_step: the step that training resumes from, or 0.
        examples_key: identifies the evaluation examples.
        extra_files: file name -> content, for the files that must be next to a checkpoint.
    """

    compute_metrics: Callable[[], Mapping[str, Any]]
    model: keras.Model
    output_dir: str
    every: int
    monitor: Monitor
    patience: int
    initial_step: int
    examples_key: str
    extra_files: Mapping[str, str]
    is_chief: bool

    def __post_init__(self) -> None:
        self._path = os.path.join(self.output_dir, EVALUATIONS)
        self._evaluations = self._read_earlier()

    @property
    def digest(self) -> int:
        """A checksum of the evaluations, for checking that all workers agree."""
        return zlib.crc32(json.dumps(self._evaluations, sort_keys=True).encode())

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation so far; the first one if several are equal."""
        return max(self._evaluations, key=self.monitor.score, default=None)

    @property
    def should_stop(self) -> bool:
        """Whether none of the last `patience` evaluations improved on the best."""
        if not self.patience or not self.best:
            return False
        return len(self._evaluations) - 1 - self._evaluations.index(self.best) >= self.patience

    @property
    def points(self) -> dict[str, Points]:
        """The (step, value) points of the monitored metric and the loss, for the plot."""
        evaluations = self._evaluations
        losses = [(e["step"], e.get("eval_loss", e.get("loss"))) for e in evaluations]
        points = {
            "eval_loss": [point for point in losses if point[1] is not None],
            f"eval_{self.monitor.name}": [(e["step"], self.monitor.value(e)) for e in evaluations],
        }
        return {name: values for name, values in points.items() if values}

    def is_due(self, step: int, is_last_step: bool) -> bool:
        """Returns whether `step` is the last or a multiple of `every`, and not yet evaluated."""
        due = is_last_step or step % self.every == 0
        return due and all(evaluation["step"] != step for evaluation in self._evaluations)

    def was_missed(self, last_step: int) -> bool:
        """Returns whether an earlier run was killed before it evaluated its last checkpoint."""
        return bool(self.best) and self.is_due(last_step, is_last_step=True)

    def evaluate(self, step: int) -> bool:
        """Evaluates the model, saves its weights if they are the best; returns whether to stop."""
        metrics = self.compute_metrics()
        evaluation = {"step": step, **plain_metrics(metrics)}
        self._evaluations.append(evaluation)
        best = self.best or evaluation
        if self.is_chief:
            if best is evaluation:
                self._save_best(step)
            self._write_evaluations()
            folder = os.path.join(self.output_dir, EVAL_FOLDER)
            with contextlib.closing(Scalars(folder)) as scalars:
                scalars.write(step, {name: float(value) for name, value in metrics.items()})
        name, value = self.monitor.name, self.monitor.value
        earlier_best = f"best: {value(best):.4f} at step {best['step']}"
        rank = "best so far" if best is evaluation else earlier_best
        note(f"Evaluation at step {step}: {name} = {value(evaluation):.4f} ({rank})")
        if self.should_stop:
            evaluations = counted(self.patience, "evaluation")
            note(f"Early stopping: no improvement in {evaluations}")
        return self.should_stop

    def _save_best(self, step: int) -> None:
        folder = os.path.join(self.output_dir, BEST_FOLDER)
        files.make_dirs(folder)
        variables = checkpoints.named_variables(self.model)
        values = {name: variable.value for name, variable in variables.items()}
        prefix = os.path.join(folder, BEST_NAME)
        checkpoints.write(prefix, {**values, checkpoints.GLOBAL_STEP: np.int64(step)})
        checkpoints.add_newest(folder, BEST_NAME)
        files.write_texts(folder, self.extra_files)

    def _write_evaluations(self) -> None:
        content = {
            "metric": self.monitor.name,
            "examples": self.examples_key,
            "best": self.best,
            "evaluations": self._evaluations,
        }
        files.write_text(self._path, json.dumps(content, indent=1) + "\n")

    def _read_earlier(self) -> list[dict[str, Any]]:
        """Reads the evaluations of earlier runs, up to the step that this run resumes from."""
        if not self.initial_step or not files.exists(self._path):
            return []
        try:
            content = files.read_json(self._path)
            earlier = [dict(e) for e in content["evaluations"] if e["step"] <= self.initial_step]
            best = checkpoints.latest(os.path.join(self.output_dir, BEST_FOLDER))
            metric = content.get("metric") or content["figure"]  # its name before version 1.0
            if best and (metric, content["examples"]) == (self.monitor.name, self.examples_key):
                return earlier
            problem = "of another metric, of other examples, or without a checkpoint"
        except (UserError, ValueError, KeyError, TypeError):
            problem = "damaged"
        warn(f"ignoring these evaluations: {problem}", at=self._path)
        return []
