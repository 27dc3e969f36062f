"""Plots of an evaluation and of a training, as PNG.

matplotlib and scikit-learn are imported on use. Figures are made without pyplot's registry, so that
threads can draw at once and no window opens.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.tasks.classification.metrics import one_line

_DPI = 120
_MAX_LABEL_LENGTH = 20
# Of more labels, cells are too small for numbers.
_MAX_LABELS_WITH_NUMBERS = 20
_MAX_INCHES = 14.0
# Tried for characters that matplotlib's own font lacks, where installed.
_CJK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")
# DejaVu Sans, matplotlib's own font, has Latin, Greek, Cyrillic and Armenian, which precede this.
_FIRST_UNCERTAIN_CHARACTER = "\N{HEBREW ACCENT ETNAHTA}"

_LOSS_COLOR = "#1f77b4"
# The running mean of the loss spans this part of a training.
_SMOOTHING = 1 / 25
_MAX_POINTS = 1000
# Limits of axes overflow beyond.
_MAX_VALUE = 3e38


def plot_confusion_matrix(matrix: list[list[int]], labels: Sequence[str]) -> bytes:
    """Draws a confusion matrix as a PNG.

    Args:
        matrix: counts by true label (row) and predicted label (column).
        labels: their names, at least one.

    Returns:
        A PNG. The color of a cell is its share of its row. Up to 20 labels, cells show counts and
        shares.
    """
    from matplotlib.colors import PowerNorm
    from sklearn.metrics import ConfusionMatrixDisplay

    counts = np.array(matrix, np.int64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with_numbers = len(labels) <= _MAX_LABELS_WITH_NUMBERS
    inches = min(_MAX_INCHES, 1 + len(labels) * (0.7 if with_numbers else 0.25))
    with _png(inches, inches) as (figure, png):
        axes = figure.add_subplot()
        display = ConfusionMatrixDisplay(shares)
        # Most errors are a few percent of a row: the scale spreads small shares.
        style = {"cmap": "Blues", "im_kw": {"norm": PowerNorm(0.5, 0, 1)}}
        display.plot(ax=axes, include_values=with_numbers, colorbar=not with_numbers, **style)
        for index, text in np.ndenumerate(display.text_ if with_numbers else ()):
            count = f"{counts[index]:,}"
            text.set(text=f"{count}\n{shares[index]:.1%}", size=min(10, 60 / len(count)))
        ticks = range(len(labels))
        names = [_tick_label(number, label) for number, label in enumerate(labels)]
        style = {"parse_math": False, "family": _fonts(), "fontsize": 9}
        axes.set_yticks(ticks, names, **style)
        axes.set_xticks(ticks, names, rotation=45, ha="right", rotation_mode="anchor", **style)
        total, correct = counts.sum(), np.trace(counts)
        share = f" ({correct / total:.1%})" if total else ""
        axes.set_title(f"Confusion matrix\n{correct:,} of {total:,} correct{share}", fontsize=11)
    return png.getvalue()


def plot_training_curve(
    steps: Sequence[int] | np.ndarray,
    losses: Sequence[float] | np.ndarray,
    evaluations: Mapping[str, Sequence[tuple[int, float]]],
) -> bytes:
    """Draws losses and evaluations of a training as a PNG.

    Args:
        steps: in any order.
        losses: the loss of each step. Losses that are not finite are left out.
        evaluations: name of a metric -> (step, value) of each evaluation.

    Returns:
        A PNG: losses and their running mean on the left axis, evaluations on the right one.
    """
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    with _png(8, 4.5) as (figure, png):
        axes = figure.add_subplot(title="Training", xlabel="step")
        axes.set_ylabel("loss", color=_LOSS_COLOR)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(color="#dddddd", linewidth=0.6)
        steps, losses, missing = _finite_points(steps, losses)
        if len(steps):
            name = "loss" + (f" (not finite: {missing:,} times)" if missing else "")
            axes.plot(steps, losses, ".", color=_LOSS_COLOR, alpha=0.3, markersize=3, label=name)
            axes.plot(*_running_mean(steps, losses), color=_LOSS_COLOR, label="running mean")
        other = None
        colors = iter(10 * matplotlib.colormaps["Dark2"].colors)
        for name, points in evaluations.items():
            at, values, _ = _finite_points(*zip(*points, strict=True)) if points else ((), (), 0)
            if len(at):
                other = other or axes.twinx()
                other.set_ylabel("evaluation")
                other.plot(at, values, "o-", color=next(colors), markersize=6, label=name)
        for each in filter(None, (axes, other)):
            each.ticklabel_format(axis="y", useOffset=False, useMathText=False)
        curves = [*axes.get_lines(), *(other.get_lines() if other else ())]
        if curves:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
            axes.legend(handles=curves, frameon=False, ncols=min(len(curves), 4), **below)
    return png.getvalue()


@contextlib.contextmanager
def _png(width: float, height: float) -> Iterator[tuple[Any, io.BytesIO]]:
    """Yields a figure of that size in inches, and a file that it is written to on exit."""
    from matplotlib.figure import Figure

    figure, png = Figure(figsize=(width, height), dpi=_DPI, facecolor="white"), io.BytesIO()
    with warnings.catch_warnings():
        # Characters that no font has.
        warnings.simplefilter("ignore")
        yield figure, png
        figure.savefig(
            png, bbox_inches="tight", pad_inches=0.2, dpi=_DPI, metadata={"Software": None}
        )


def _tick_label(number: int, label: str) -> str:
    """Shortens a label, and numbers it if the font may draw some of its characters as boxes."""
    printable = "".join(char if char.isprintable() else " " for char in label)
    name = one_line(printable, _MAX_LABEL_LENGTH)
    return name if max(name, default="\uffff") < _FIRST_UNCERTAIN_CHARACTER else f"{number}: {name}"


def _fonts() -> list[str]:
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(font for font in _CJK_FONTS if font in installed)]


def _finite_points(
    steps: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Steps in order and their values that can be drawn, and the number of those that cannot."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    order = np.argsort(steps, kind="stable")
    kept = order[np.abs(values[order]) <= _MAX_VALUE]
    return steps[kept], values[kept], len(values) - len(kept)


def _running_mean(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most about 1,000 of the steps, and the mean of the values around each of them."""
    half = int(len(values) * _SMOOTHING / 2)
    center = np.arange(0, len(values), math.ceil(len(values) / _MAX_POINTS))
    # Fewer values at both ends.
    start, end = np.maximum(center - half, 0), np.minimum(center + half + 1, len(values))
    sums = np.cumsum([0, *values])
    return steps[center], (sums[end] - sums[start]) / (end - start)
