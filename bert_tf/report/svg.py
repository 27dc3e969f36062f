"""Charts as inline SVG, which scale with the page and take their colors from its style sheet."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

_WIDTH, _HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 22, 40
_NUM_TICKS = 5
# Lines with more points have no dots at them.
_MAX_MARKED = 40

Limits = tuple[float, float]
Values = Sequence[float] | np.ndarray


class Series(NamedTuple):
    """Points of a chart, in a color of its own; a point that is not finite leaves a gap.

    `kind` is "line", "dots", "bars" (x is the middle of a bar) or "guide", a dashed line. Series
    without a name are not in the legend. `texts` are written above the points.
    """

    name: str
    x: Values
    y: Values
    kind: str = "line"
    texts: Sequence[str] = ()


def chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    x_limits: Limits | None = None,
    y_limits: Limits | None = None,
) -> str:
    """Draws series with axes and a legend; limits default to those of the finite values."""
    low, high = x_limits or _limits([item.x for item in series])
    bottom, top = y_limits or _limits([item.y for item in series])
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - low) / (high - low), (y - bottom) / (top - bottom)
        return round(_LEFT + width * across, 1), round(_TOP + height * (1 - up), 1)

    parts = []
    for value, text in _ticks(bottom, top):
        y = place(low, value)[1]
        parts.append(f'<path class="grid" d="M{_LEFT} {y}h{width}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    ticks = [(place(value, bottom)[0], _HEIGHT - 22, text) for value, text in _ticks(low, high)]
    for x, y, text in [*ticks, (_LEFT + width / 2, _HEIGHT - 5, escape(x_label))]:
        parts.append(f'<text x="{x}" y="{y}" text-anchor="middle">{text}</text>')
    for number, item in enumerate(series):
        pairs = zip(map(float, item.x), map(float, item.y), strict=True)
        points = [place(*pair) if all(map(math.isfinite, pair)) else None for pair in pairs]
        with_dots = item.kind == "line" and len(points) <= _MAX_MARKED
        for kind in (item.kind, "dots")[: 1 + with_dots]:
            path = _path(points, kind, 0.8 * width / max(len(points), 1))
            parts.append(f'<path class="{kind} s{number}" d="{path}"/>')
        for point, text in zip(points, item.texts, strict=False):
            x, y = point or (0, 0)
            parts.append(f'<text x="{x}" y="{y - 9}" text-anchor="middle">{escape(text)}</text>')
    names = (f'<b class="s{n}">{escape(s.name)}</b>' for n, s in enumerate(series) if s.name)
    caption = " ".join([escape(y_label), *names])
    start = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y_label)}">'
    drawing = "".join([start, *parts, "</svg>"])
    return f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>"


def _path(points: Sequence[tuple[float, float] | None], kind: str, bar_width: float) -> str:
    base, parts, is_open = _HEIGHT - _BOTTOM, [], False
    for point in points:
        if point and kind == "bars" and point[1] < base:
            left = point[0] - bar_width / 2
            parts.append(f"M{left:.1f} {base}V{point[1]}h{bar_width:.1f}V{base}z")
        elif point and kind == "dots":  # with round caps, a line without length is a dot
            parts.append(f"M{point[0]} {point[1]}h0")
        elif point and kind != "bars":
            parts.append(f"{'L' if is_open else 'M'}{point[0]} {point[1]}")
        is_open = bool(point)
    return "".join(parts)


def _limits(values: Sequence[Values]) -> Limits:
    joined = np.concatenate([np.asarray(x, np.float64) for x in values])
    finite = joined[np.isfinite(joined)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Returns about five round values between the limits, and their texts."""
    raw = (high - low) / _NUM_TICKS
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(n * step, f"{n * step:.6g}") for n in range(first, last + 1)]
