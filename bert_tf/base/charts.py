"""Charts, drawn by matplotlib: SVG for pages, in their colors, and PNG files."""

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of the series in a panel, and of text and grid. In SVG, the latter becomes the page's color.
_COLORS = ("#3b82c4", "#d9690f", "#1b9e77")
_INK = "#010203"
_STYLE: dict[Any, Any] = {
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.2,
}
_STYLE |= {"xtick.color": _INK, "ytick.color": _INK, "text.parse_math": False, "font.size": 10}
_STYLE |= {"svg.fonttype": "none", "svg.hashsalt": "bert_tf", "axes.axisbelow": True}
# What a page does not need: metadata, ids, sizes and fonts.
_SUPERFLUOUS = "|".join(
    (
        r"<metadata>.*?</metadata>",
        r"<defs>\s*<style.*?</defs>",
        r' id="[a-z][\w.]*_\d+"',
        r' (width|height)="\S+pt"| xmlns\S+| version="1.1"',
        r'font-family: [^;"]*;? ?| transform="rotate\(-0 [^"]*"',
        r"<g/>|(?<=>)\s+",
    )
)
_DPI = 160
# Lines with more points have no markers; more dots become pixels, to keep pages small.
_MAX_MARKED, _MAX_DOTS = 40, 200

Limits = tuple[float, float]
Values = Sequence[float] | np.ndarray


class Series(NamedTuple):
    """Points in a color of their own; a point that is not finite leaves a gap.

    `kind` is "line", "faint" (a thin line, without a color of its own), "dots", "bars" (x is the
    middle of a bar) or "guide", a dashed line. Series without a name are not in the legend. `texts`
    are written above the points.
    """

    name: str
    x: Values
    y: Values
    kind: str = "line"
    texts: Sequence[str] = ()


class Panel(NamedTuple):
    """The label of the vertical axis, what is drawn, and the ends of that axis, by default free."""

    label: str
    series: Sequence[Series]
    limits: Limits | None = None


def draw(panels: Sequence[Panel], x_label: str, x_limits: Limits | None = None) -> "Figure":
    """Draws panels below each other, with a common horizontal axis and a legend."""
    # Not pyplot: it may open a window, and its global state is not thread-safe.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure((5.6, 0.6 + 2.4 * len(panels)), dpi=_DPI)
        rows = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        used = 0
        for axes, panel in zip(rows, panels, strict=True):
            for series in panel.series:
                _add(axes, series, _COLORS[used % len(_COLORS)])
                used += series.kind in ("line", "dots", "bars")
            axes.set(ylabel=panel.label, ylim=panel.limits)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            axes.grid(axis="y")
        rows[-1].set(xlabel=x_label, xlim=x_limits)
        below = 0.5 / figure.get_figheight()
        figure.subplots_adjust(0.13, below, 0.97, 1 - 0.6 * below, hspace=0.15)
        if any(series.name for panel in panels for series in panel.series):
            figure.legend(loc="upper center", ncols=4, frameon=False, borderaxespad=0)
    return figure


def _add(axes: Any, series: Series, color: str) -> None:
    name, x, y, kind, texts = series
    y = np.where(np.isfinite(y), y, np.nan)
    if kind == "bars":
        width = 0.8 * (np.ptp(x) / (len(x) - 1) if len(x) > 1 else 1)
        axes.bar(x, y, width, color=color, label=name)
    elif kind == "dots":
        many = len(x) > _MAX_DOTS
        axes.plot(x, y, "o", color=color, label=name, markersize=3, alpha=0.6, rasterized=many)
    elif kind == "guide":
        axes.plot(x, y, "--", color=_INK, linewidth=0.8, label=name)
    else:
        style = {"alpha": 0.35, "linewidth": 1} if kind == "faint" else {"linewidth": 1.8}
        marker = "o" if len(x) <= _MAX_MARKED else None
        axes.plot(x, y, color=color, marker=marker, markersize=4, label=name, **style)
    for position, text in zip(zip(x, y, strict=True), texts, strict=False):
        axes.annotate(text, position, (0, 6), textcoords="offset points", ha="center")


def to_png(figure: "Figure", **settings: Any) -> bytes:
    """Returns the PNG of a figure; `settings` are those of `Figure.savefig`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None}, **settings)
    return buffer.getvalue()


def to_svg(figure: "Figure", title: str) -> str:
    """Returns the SVG of a figure for a page, as wide as its place; always the same."""
    import matplotlib as mpl

    buffer, metadata = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    start, svg = "<svg", buffer.getvalue().replace("\n", " ")
    svg = re.sub(_SUPERFLUOUS, "", svg[svg.index(start) :])
    svg = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.1f}", svg)
    svg = svg.replace(_INK, "currentColor").strip()
    return f'{start} role="img" aria-label="{escape(title)}"{svg.removeprefix(start)}'
