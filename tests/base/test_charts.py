"""Charts: the SVG of a page, and values that are hard to draw."""

import re

import numpy as np
import pytest

from bert_tf.base.charts import Panel, Series, draw, to_svg

ALL = [
    Series("line", [0, 5, 10], [0.0, float("nan"), 0.5], texts=["a", "b", "c"]),
    Series("dots", range(1000), range(1000), "dots"),
    Series("bars", [1, 2, 3], [2, 0, 4], "bars"),
    Series("", [0, 1], [0, 1], "guide"),
]


def test_svg_has_the_colors_of_the_page_and_loads_nothing():
    svg = to_svg(draw([Panel('<"loss">', ALL), Panel("other", ALL, (0, 1))], "$step"), '<"loss">')
    assert svg.startswith('<svg role="img" aria-label="&lt;&quot;loss&quot;&gt;"')
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert not re.search(r"https?:|<style|font-family|DOCTYPE", svg)
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert {"$step", '&lt;"loss"&gt;', "other", "line", "dots", "bars", "a"} <= {*texts}
    assert len(svg) < 100_000  # many dots are pixels


def test_svg_is_always_the_same():
    first, second = (to_svg(draw([Panel("y", ALL)], "x"), "") for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "values",
    [[], [0.0], [float("nan")], [1e30, -1e30], [1e-30, 2e-30], [5.0, 5.0], [np.float32(0.1), 3]],
)
@pytest.mark.parametrize("kind", ["line", "dots", "bars", "guide"])
def test_unusual_values(values, kind):
    series = Series("<&>", range(len(values)), values, kind)
    assert "&lt;&amp;&gt;" in to_svg(draw([Panel("y", [series])], "x"), "")
