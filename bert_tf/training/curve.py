"""Curves of a training run: scalars for TensorBoard, and a table and a plot of the losses."""

import dataclasses
import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints.run_folder import CURVE

CURVE_PLOT = "training_curve.png"

_HEADER = "step\tloss\tlearning_rate\n"
# Width of the running mean's window, as a fraction of the number of recorded steps.
_SMOOTHING_WIDTH = 1 / 25
_DOTS_PER_INCH = 120
_LOSS_COLOR = "#1f77b4"
_METRIC_COLORS = ("#d95f02", "#1b9e77")

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
            files.write_bytes(path, plot_training_curve(steps, losses, self.get_metrics()))
            note(f"Training curve: {path}")
        except UserError as error:
            warn(str(error))


def read_table(path: str) -> list[tuple[int, float, float]]:
    """Returns step, loss and learning rate of each row; [] without a valid file."""
    if not files.exists(path):
        return []
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


def plot_training_curve(
    steps: Sequence[int], losses: Sequence[float], metrics: Mapping[str, Points]
) -> bytes:
    """Plots losses with their running mean, and other metrics below them; returns PNG bytes.

    Names of losses contain "loss". Non-finite losses leave a gap.
    """
    # Not pyplot: it may open a window, and its global state is not thread-safe.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    has_metrics = any("loss" not in name for name in metrics)
    figure = Figure((8, 6 if has_metrics else 4.5), dpi=_DOTS_PER_INCH, layout="constrained")
    ratios = [3, 2][: 1 + has_metrics]
    all_axes = figure.subplots(len(ratios), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    axes = all_axes[0]
    axes.set(title="Training", ylabel="loss")
    all_axes[-1].set_xlabel("step")
    for each in all_axes:
        each.grid(color="#dddddd", linewidth=0.6)
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
    values = np.asarray(losses, np.float64)
    values[~np.isfinite(values)] = np.nan
    marker = "o" if len(steps) <= 50 else None
    axes.plot(steps, values, _LOSS_COLOR, marker=marker, markersize=3, alpha=0.35, label="loss")
    half = int(len(values) * _SMOOTHING_WIDTH / 2)
    means = np.convolve(values, np.full(2 * half + 1, 1 / (2 * half + 1)), "valid")
    mean_steps = steps[half : len(steps) - half]
    axes.plot(mean_steps, means, _LOSS_COLOR, linewidth=1.8, label="running mean")
    for index, (name, points) in enumerate(metrics.items()):
        x, y = np.reshape(points, (-1, 2)).T
        color = _METRIC_COLORS[index % len(_METRIC_COLORS)]
        metric_axes = all_axes[0 if "loss" in name else -1]
        metric_axes.plot(x, y, color, marker="os"[index % 2], label=name)
    if has_metrics:
        points = [point for name in metrics if "loss" not in name for point in metrics[name]]
        all_axes[1].set(ylabel="evaluation", ylim=metric_limits(value for _, value in points))
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
