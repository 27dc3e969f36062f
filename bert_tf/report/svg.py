"""Charts as inline SVG, which scale with the page and take their colors from its style sheet."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

_WIDTH, _HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_NUM_TICKS = 5

Limits = tuple[float, float]


class Series(NamedTuple):
    """Points of a chart, in a color of its own.

    Attributes:
        name: name in the legend; "" for none.
        x: values of the horizontal axis; those that are not finite leave a gap.
        y: values of the vertical axis.
        kind: "line", "dots", "both", "bars" (x is the middle of a bar) or "guide", a dashed line.
    """

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    kind: str = "line"


def chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    x_limits: Limits | None = None,
    y_limits: Limits | None = None,
) -> str:
    """Draws series with axes and a legend; limits default to those of the finite values."""
    low, high = x_limits or _limits([s.x for s in series])
    bottom, top = y_limits or _limits([s.y for s in series])
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - low) / (high - low), (y - bottom) / (top - bottom)
        return round(_LEFT + width * across, 1), round(_TOP + height * (1 - up), 1)

    title = escape(f"{y_label} by {x_label}")
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">']
    for value, text in _ticks(bottom, top):
        y = place(low, value)[1]
        parts.append(f'<path class="grid" d="M{_LEFT} {y}h{width}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    for value, text in _ticks(low, high):
        x = place(value, bottom)[0]
        parts.append(f'<text x="{x}" y="{_HEIGHT - 22}" text-anchor="middle">{text}</text>')
    for number, item in enumerate(series):
        points = [
            place(x, y)
            for x, y in zip(item.x, item.y, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        ]
        parts.append(_draw(points, item, number, width / max(len(item.x), 1)))
    middle = _LEFT + width / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 5}" text-anchor="middle">{escape(x_label)}</text></svg>'
    )
    names = (f'<b class="s{n}">{escape(s.name)}</b>' for n, s in enumerate(series) if s.name)
    caption = " ".join([f"{escape(y_label)}:", *names])
    return f"<figure><figcaption>{caption}</figcaption>{''.join(parts)}</figure>"


def _draw(points: Sequence[tuple[float, float]], item: Series, color: int, width: float) -> str:
    base = _HEIGHT - _BOTTOM
    if item.kind == "bars":
        d = "".join(
            f"M{x - 0.4 * width:.1f} {base}V{y}h{0.8 * width:.1f}V{base}z" for x, y in points
        )
        return f'<path class="bar s{color}" d="{d}"/>'
    line = "M" + "L".join(f"{x} {y}" for x, y in points) if points else ""
    # A round cap makes a dot of a line without length.
    dots = "".join(f"M{x} {y}h0" for x, y in points)
    kinds = {"line": [(line, "line")], "guide": [(line, "guide")], "dots": [(dots, "dots")]}
    drawn = kinds.get(item.kind, [(line, "line"), (dots, "dots")])
    return "".join(f'<path class="{kind} s{color}" d="{d}"/>' for d, kind in drawn)


def _limits(values: Sequence[Sequence[float] | np.ndarray]) -> Limits:
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
