"""Curves of a training run: scalars for TensorBoard, and a table and a plot of the losses."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base import charts, files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints.run_folder import CURVE

CURVE_PLOT = "training_curve.png"

_HEADER = "step\tloss\tlearning_rate\n"
# Width of the running mean's window, as a fraction of the number of recorded steps.
_SMOOTHING_WIDTH = 1 / 25

# (step, metric value) pairs.
Points = Sequence[tuple[int, float]]

# Tells TensorBoard to show a value as a scalar.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
)


class Scalars:
    """Writes scalars for TensorBoard to a folder; the first `write` creates the file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point to the curve of each value; skips non-finite values."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if math.isfinite(value):
                    # Like tf.summary.scalar, but without requiring TensorBoard.
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)

    def close(self) -> None:
        """Flushes and closes the file."""
        if self._writer is not None:
            self._writer.close()


@dataclasses.dataclass(eq=False)
class TrainingCurve:
    """Records the loss and the learning rate of each step, and plots the losses.

    A run that resumes from `initial_step` (0 if it starts anew) appends to the table of the
    previous run. `get_metrics` returns the points to plot, by name of the evaluation metric.
    """

    output_dir: str
    initial_step: int
    get_metrics: Callable[[], Mapping[str, Points]] = dict
    is_chief: bool = True

    def __post_init__(self) -> None:
        path = os.path.join(self.output_dir, CURVE)
        self._rows = [row for row in read_table(path) if row[0] <= self.initial_step]

    def on_step(self, step: int, results: Mapping[str, float]) -> None:
        """Records the loss and the learning rate."""
        self._rows.append((step, results["loss"], results["learning_rate"]))

    def on_checkpoint(self) -> None:
        """Writes the table, so that a run that resumes from the checkpoint finds it complete."""
        lines = [f"{step}\t{loss:.6g}\t{rate:.6g}\n" for step, loss, rate in self._rows]
        files.write_text(os.path.join(self.output_dir, CURVE), _HEADER + "".join(lines))

    def close(self) -> None:
        """Writes the table and the plot, even if the run failed."""
        if not self._rows or not self.is_chief:
            return
        try:
            self.on_checkpoint()
            steps, losses, _ = zip(*self._rows, strict=True)
            path = os.path.join(self.output_dir, CURVE_PLOT)
            figure = training_figure(steps, losses, self.get_metrics())
            files.write_bytes(path, charts.to_png(figure))
            note(f"Training curve: {path}")
        except UserError as error:
            warn(str(error))


def read_table(path: str) -> list[tuple[int, float, float]]:
    """Returns step, loss and learning rate of each row; [] without a valid file."""
    try:
        lines = [line.split("\t") for line in files.read_lines(path)][1:]
        return [(int(step), float(loss), float(rate)) for step, loss, rate in lines]
    except (UserError, ValueError):
        return []


def metric_limits(values: Iterable[float]) -> tuple[float, float] | None:
    """Returns the ends of an axis: 0 and 1, or 0 and 100 for percentages; None for other values."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    return (0.0, 1.0 if high <= 1 else 100.0) if low >= 0 and high <= 100 else None


def training_figure(
    steps: charts.Values, losses: charts.Values, metrics: Mapping[str, Points]
) -> Any:
    """Draws losses with their running mean, and other metrics below them, by step.

    Names of losses contain "loss". Non-finite losses leave a gap.
    """
    values = np.asarray(losses, np.float64)
    half = int(len(values) * _SMOOTHING_WIDTH / 2)
    means = np.convolve(values, np.full(2 * half + 1, 1 / (2 * half + 1)), "valid")
    upper = [
        charts.Series("loss", steps, values, "faint"),
        charts.Series("running mean", steps[half : len(steps) - half], means),
    ]
    lower = []
    for name, points in metrics.items():
        x, y = np.reshape(points, (-1, 2)).T
        (upper if "loss" in name else lower).append(charts.Series(name, x, y))
    panels = [charts.Panel("loss", upper)]
    if lower:
        limits = metric_limits(value for series in lower for value in series.y)
        panels.append(charts.Panel("evaluation", lower, limits))
    return charts.draw(panels, "step")
