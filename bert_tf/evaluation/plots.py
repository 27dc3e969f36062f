"""Pictures of an evaluation and of a training, as PNG.

matplotlib is imported where it is needed. Figures are objects that nothing else knows (no pyplot,
whose figures belong to the process), so that threads can draw at once and no window is opened.
"""

import io
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.evaluation.metrics import one_line

_DOTS_PER_INCH = 120
_LONGEST_LABEL = 20
_LONGEST_NAME = 40
# Cells of more labels are too small for numbers.
_MOST_WITH_NUMBERS = 20
# Names on an axis; of more labels each second one is named, or each third.
_MOST_NAMES = 60
# Inches.
_LARGEST_MATRIX = 14.0
# A curve has no more points than can be told apart.
_MOST_POINTS = 1000
# The part of a training that a running mean is of.
_MEAN_OF = 1 / 25
# What is beyond float32 is drawn no more than what is not a number.
_LARGEST_NUMBER = 3e38

# Colours go by this power of a share.
_COLOR_POWER = 0.5
_TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1)
_LOSS_COLOR = "#1f77b4"
_OTHER_COLORS = ("#d95f02", "#1b9e77", "#7b3294", "#c51b7d", "#666666", "#8c6d1f")
_MARKERS = "osD^vP"
# Instead of a character for which there is no font.
_NO_GLYPH = "\N{WHITE SQUARE}"
# Fonts with Chinese characters of several systems; matplotlib's own has none.
_OTHER_FONTS = re.compile(
    r"Noto Sans CJK|Source Han Sans|WenQuanYi|SimHei|Microsoft YaHei|PingFang|Heiti|"
    r"Hiragino Sans|Arial Unicode|Droid Sans Fallback|Unifont"
)


def plot_confusion_matrix(matrix: list[list[int]], labels: Sequence[str]) -> bytes:
    """Draws which labels are taken for which.

    Args:
        matrix: how many examples have the label of a row and were given that of a column.
        labels: their names, at least one.

    Returns:
        A PNG. The colour of a cell says which share of its row it is; so do numbers in it, where
        there are at most 20 labels.
    """
    from matplotlib.colors import PowerNorm

    counts = np.array(matrix, np.int64)
    sums = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(sums, 1)
    inches = min(_LARGEST_MATRIX, len(labels) * _cell_inches(len(labels)))
    figure = _figure(inches, inches)
    # The matrix is the whole figure: names stand around it, and the file has room for them.
    axes = figure.add_axes((0, 0, 1, 1))
    # Seen are mistakes, a few parts in a hundred: their colours are spread.
    spread = PowerNorm(_COLOR_POWER, vmin=0, vmax=1)
    image = axes.imshow(shares, cmap="Blues", norm=spread, interpolation="nearest")
    _name_labels(axes, labels)
    examples, right = int(counts.sum()), int(np.trace(counts))
    share = f" ({right / examples:.1%})" if examples else ""
    axes.set_title(f"Confusion matrix\n{right:,} of {examples:,} right{share}", fontsize=11, pad=12)
    if len(labels) > _MOST_WITH_NUMBERS:
        bar = figure.colorbar(image, cax=axes.inset_axes((1.02, 0, 0.025, 1)), ticks=_TICKS)
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        bar.set_label("share of the row")
        bar.outline.set_linewidth(0.5)
    else:
        _write_cells(axes, counts, shares, inches / len(labels))
    return _png(figure)


def plot_training_curve(
    steps: Sequence[int] | np.ndarray,
    losses: Sequence[float] | np.ndarray,
    evaluations: Mapping[str, Sequence[tuple[int, float]]],
) -> bytes:
    """Draws how the loss fell and what evaluations found.

    Args:
        steps: any number.
        losses: the loss of each of them. What is not finite is not drawn.
        evaluations: the name of a figure, accuracy for instance, and steps with what it was then.

    Returns:
        A PNG: the loss on the left axis, pale, and its running mean; evaluations on the right one.
    """
    steps, losses, missing = _points(steps, losses)
    figure = _figure(8, 4.5)
    axes = figure.add_axes((0, 0, 1, 1))
    curves, names, drawn = [], [], [*steps[:1], *steps[-1:]]
    if len(steps):
        places = _extremes(losses)
        # Of few steps the points are seen, or a single one would not be.
        marker = "o" if len(steps) <= 50 else ""
        size = 3 if len(steps) > 1 else 9
        style = {"color": _LOSS_COLOR, "alpha": 0.35, "linewidth": 0.8, "markersize": size}
        curves += axes.plot(steps[places], losses[places], marker=marker, **style)
        names.append("loss" + (f" (not finite: {missing:,} times)" if missing else ""))
        curves += axes.plot(*_running_mean(steps, losses), color=_LOSS_COLOR, linewidth=1.8)
        names.append("running mean of the loss")
    axes.set_title("Training", fontsize=12, pad=10)
    axes.set_xlabel("step")
    axes.set_ylabel("loss", color=_LOSS_COLOR)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.ticklabel_format(axis="y", useOffset=False, useMathText=False)
    other = None
    for number, (name, found) in enumerate(evaluations.items()):
        at, figures, _ = _points(*zip(*found, strict=True)) if found else ([], [], 0)
        if not len(at):
            continue
        other = other or _right_axis(axes)
        color = _OTHER_COLORS[number % len(_OTHER_COLORS)]
        marker = _MARKERS[number % len(_MARKERS)]
        curves += other.plot(at, figures, color=color, marker=marker, markersize=5, linewidth=1.3)
        names.append(name)
        drawn += [at[0], at[-1]]
    _limit_steps(axes, drawn)
    _add_legend(axes, curves, names)
    return _png(figure)


def _figure(width: float, height: float) -> Any:
    """An empty figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    """The figure and all that stands around its axes."""
    written = io.BytesIO()
    # No name and version of matplotlib in the file: they are of no use to anybody.
    options = {"bbox_inches": "tight", "pad_inches": 0.2, "metadata": {"Software": None}}
    figure.savefig(written, format="png", dpi=_DOTS_PER_INCH, **options)
    return written.getvalue()


def _cell_inches(labels: int) -> float:
    """The side of a cell: room for two numbers, or for one name beside it."""
    if labels > _MOST_WITH_NUMBERS:
        return 0.25
    return 1.2 if labels <= 3 else 0.62


def _name_labels(axes: Any, labels: Sequence[str]) -> None:
    """Writes the names on both axes of a confusion matrix."""
    named = range(0, len(labels), math.ceil(len(labels) / _MOST_NAMES))
    texts, font = _drawable([labels[place] for place in named], named, _LONGEST_LABEL)
    size = 9 if len(labels) <= _MOST_WITH_NUMBERS else 8
    # Not TeX, whatever signs are in them.
    style = {"parse_math": False, "usetex": False, "family": font, "fontsize": size}
    axes.set_yticks(named, texts, **style)
    upright = len(labels) <= 3 and max(map(len, texts)) <= 10
    turned = {} if upright else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(named, texts, **style, **turned)
    axes.set_xlabel("predicted", fontsize=10, labelpad=8)
    axes.set_ylabel("right label", fontsize=10, labelpad=8)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_linewidth(0.5)


def _write_cells(axes: Any, counts: np.ndarray, shares: np.ndarray, inches: float) -> None:
    """Writes how many there are, and below which share of the row, into each cell."""
    longest = max(len(f"{counts.max():,}"), len("100.0%"))
    # Points; a digit is as wide as two thirds of its height.
    size = min(10.0, inches * 72 * 0.9 / (longest * 0.66))
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        # Most cells of a good model are empty: the less in them, the better the rest is seen.
        text = f"{count:,}\n{share:.1%}" if count else "0"
        color = "white" if share**_COLOR_POWER > 0.6 else "#222222" if count else "#8a8a8a"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=color)


def _drawable(
    labels: Sequence[str], numbers: Sequence[int], longest: int
) -> tuple[list[str], list[str]]:
    """Labels with only those characters for which there is a font.

    matplotlib warns of others. A label that loses some has its number before it, because nothing
    else may be left to tell it from others; so has one without any.

    Returns:
        The labels, and the fonts.
    """
    from matplotlib import font_manager

    fonts = ["DejaVu Sans"]
    known = _characters(font_manager.findfont(fonts[0]))
    if not known.issuperset("".join(labels)):
        for font in font_manager.fontManager.ttflist:
            if _OTHER_FONTS.match(font.name):
                fonts.append(font.name)
                known |= _characters(font_manager.findfont(font.name))
                break
    shown = []
    for number, label in zip(numbers, labels, strict=True):
        label = one_line(label, longest)
        clean = "".join(c if c in known and c.isprintable() else _NO_GLYPH for c in label)
        shown.append(clean if clean and clean == label else f"{number}: {clean}")
    return shown, fonts


def _characters(path: str) -> set[str]:
    """What a font has glyphs for."""
    from matplotlib import font_manager

    return set(map(chr, font_manager.get_font(path).get_charmap()))


def _points(
    steps: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Steps in order and their values, those that can be drawn, and how many cannot."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    order = np.argsort(steps, kind="stable")
    kept = order[np.abs(values[order]) <= _LARGEST_NUMBER]
    return steps[kept], values[kept], len(values) - len(kept)


def _parts(length: int, parts: int) -> Iterator[tuple[int, int]]:
    """Where the parts of something begin and end."""
    borders = np.linspace(0, length, min(length, parts) + 1).astype(int).tolist()
    yield from itertools.pairwise(borders)


def _extremes(values: np.ndarray) -> np.ndarray:
    """Places of the least and the largest value of each part: few points, and the same curve."""
    found = {len(values) - 1}
    for begin, end in _parts(len(values), _MOST_POINTS):
        found |= {begin + int(find(values[begin:end])) for find in (np.argmin, np.argmax)}
    return np.array(sorted(found))


def _running_mean(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some of the steps, and the mean of the values around each of them."""
    half = int(len(values) * _MEAN_OF / 2)
    places = np.unique([0, *(end - 1 for _, end in _parts(len(values), _MOST_POINTS))])
    # At its ends fewer: with as many before as after, a single value would be left there.
    means = [values[max(0, at - half) : at + half + 1].mean() for at in places.tolist()]
    return steps[places], np.array(means)


def _limit_steps(axes: Any, steps: Sequence[float]) -> None:
    """Makes room for some steps on the lower axis, whose numbers are whole."""
    first, last = (min(steps), max(steps)) if steps else (0, 1)
    margin = max(0.03 * (last - first), 0.5)
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _right_axis(axes: Any) -> Any:
    """A second axis for figures of evaluations."""
    other = axes.twinx()
    other.set_ylabel("evaluation")
    other.ticklabel_format(axis="y", useOffset=False, useMathText=False)
    return other


def _add_legend(axes: Any, curves: Sequence[Any], names: Sequence[str]) -> None:
    """Names the curves below the axes, where nothing can be behind them."""
    if not curves:
        return
    texts, font = _drawable(names, range(len(names)), _LONGEST_NAME)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": min(len(curves), 4)}
    legend = axes.legend(curves, ["-"] * len(curves), frameon=False, **place)
    # matplotlib leaves out names that begin with "_", and takes what is between two "$" for TeX.
    for written, text in zip(legend.get_texts(), texts, strict=True):
        written.set(parse_math=False, usetex=False, family=font, text=text)
