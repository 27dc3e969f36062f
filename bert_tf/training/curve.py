"""The training curve: losses of all steps, as a table and as a plot."""

import dataclasses
import io
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.training.callbacks import Callback

CURVE = "training_curve.tsv"
CURVE_PLOT = "training_curve.png"

_HEADER = "step\tloss\tlearning_rate\n"
# Width of the running mean, as a part of the training.
_SMOOTHING = 1 / 25
_DOTS_PER_INCH = 120
_LOSS_COLOR = "#1f77b4"
_METRIC_COLORS = ("#d95f02", "#1b9e77")

# Steps with the value of a metric.
Points = Sequence[tuple[int, float]]


@dataclasses.dataclass(eq=False)
class TrainingCurve(Callback):
    """Records the loss and the learning rate of each step.

    A training that resumes from `first_step` adds to the table of the run before. `metrics` returns
    the points of evaluations by the name of a metric.
    """

    output_dir: str
    first_step: int
    metrics: Callable[[], Mapping[str, Points]] = dict
    is_chief: bool = True

    def __post_init__(self) -> None:
        self._rows = _read(os.path.join(self.output_dir, CURVE), self.first_step)

    def on_step(self, step: int, results: Mapping[str, float]) -> None:
        """Records the loss."""
        self._rows.append((step, results["loss"], results["learning_rate"]))

    def on_checkpoint(self) -> None:
        """Writes the table, so that it is complete when a training resumes from the checkpoint."""
        lines = [f"{step}\t{loss:.6g}\t{rate:.6g}\n" for step, loss, rate in self._rows]
        files.write_text(os.path.join(self.output_dir, CURVE), _HEADER + "".join(lines))

    def close(self) -> None:
        """Writes the table and the plot, also of a training run that failed."""
        if not self._rows or not self.is_chief:
            return
        try:
            self.on_checkpoint()
            steps, losses, _ = zip(*self._rows, strict=True)
            path = os.path.join(self.output_dir, CURVE_PLOT)
            files.write_bytes(path, plot_training_curve(steps, losses, self.metrics()))
        except UserError as error:
            log.warning("%s", error)


def _read(path: str, last_step: int) -> list[tuple[int, float, float]]:
    if not last_step or not files.exists(path):
        return []
    try:
        rows = [line.split("\t") for line in files.read_lines(path)][1:]
        found = [(int(step), float(loss), float(rate)) for step, loss, rate in rows]
    except (UserError, ValueError):
        return []
    return [row for row in found if row[0] <= last_step]


def plot_training_curve(
    steps: Sequence[int], losses: Sequence[float], metrics: Mapping[str, Points]
) -> bytes:
    """Plots losses, their running mean, and metrics on a second axis; returns a PNG.

    Losses that are not finite leave a gap.
    """
    # A `Figure` instead of pyplot, which opens windows and is shared by all threads.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 4.5), dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot(title="Training", xlabel="step")
    axes.set_ylabel("loss", color=_LOSS_COLOR)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    values = np.asarray(losses, np.float64)
    values[~np.isfinite(values)] = np.nan
    marker = "o" if len(steps) <= 50 else None
    axes.plot(steps, values, _LOSS_COLOR, marker=marker, markersize=3, alpha=0.35, label="loss")
    axes.plot(steps, _running_mean(values), _LOSS_COLOR, linewidth=1.8, label="running mean")
    right = axes.twinx() if metrics else None
    for number, (name, points) in enumerate(metrics.items()):
        color = _METRIC_COLORS[number % len(_METRIC_COLORS)]
        right.plot(*zip(*points, strict=True), color, marker="os"[number % 2], label=name)
    if right:
        right.set_ylabel("evaluation")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean of the finite values around each position; NaN where there are none."""
    half = int(len(values) * _SMOOTHING / 2)
    finite, window = np.isfinite(values), np.ones(2 * half + 1)
    sums = np.convolve(np.where(finite, values, 0.0), window, "same")
    with np.errstate(invalid="ignore"):
        return sums / np.convolve(finite, window, "same")
