"""Charts: places of points, gaps, ticks, and values that are hard to draw."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from bert_tf.report.svg import Series, chart


def paths(html, kind):
    """Returns the points of each path of a kind."""
    figure = ET.fromstring(html)
    found = [x.get("d") for x in figure.iter("path") if (x.get("class") or "").startswith(kind)]
    return [
        [tuple(map(float, p)) for p in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", d)] for d in found
    ]


def test_points_are_at_their_places():
    html = chart([Series("loss", [0, 5, 10], [0.0, 1.0, 0.5])], "step", "loss", y_limits=(0, 1))
    (points,) = paths(html, "line")
    left, middle, right = points
    assert middle[0] - left[0] == pytest.approx(right[0] - middle[0], abs=0.2)
    assert middle[1] < right[1] < left[1]
    assert right[1] == pytest.approx((left[1] + middle[1]) / 2, abs=0.2)
    texts = [x.text for x in ET.fromstring(html).iter("text")]
    assert texts == ["0", "0.2", "0.4", "0.6", "0.8", "1", "0", "2", "4", "6", "8", "10", "step"]


def test_points_that_are_not_finite_leave_a_gap():
    html = chart([Series("", [1, 2, 3, 4], [1.0, float("nan"), 2.0, 3.0])], "x", "y")
    (line,) = [x.get("d") for x in ET.fromstring(html).iter("path") if x.get("class") == "line s0"]
    assert re.sub(r"[^ML]", "", line) == "MML"


def test_bars_have_the_heights_of_their_values():
    html = chart([Series("", [1, 2, 3], [2, 0, 4], "bars")], "x", "y", (0.5, 3.5), (0, 4))
    (path,) = [x.get("d") for x in ET.fromstring(html).iter("path") if x.get("class") == "bars s0"]
    tops = [(float(base), float(top)) for base, top in re.findall(r" ([\d.]+)V([\d.]+)h", path)]
    heights = [base - top for base, top in tops]
    assert len(heights) == 2  # an empty bin has no bar
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)


@pytest.mark.parametrize(
    "values",
    [[], [0.0], [float("nan")], [1e30, -1e30], [1e-30, 2e-30], [5.0, 5.0], [np.float32(0.1), 3]],
)
def test_unusual_values(values):
    html = chart([Series("<&>", range(len(values)), values)], '"x"', "<y>")
    figure = ET.fromstring(html)
    assert "<&>" in "".join(figure.itertext())
    for points in paths(html, "line"):
        assert all(0 <= x <= 480 and 0 <= y <= 260 for x, y in points)


def test_labels_are_escaped():
    assert "<script" not in chart([Series("<script>", [1], [1])], "<script>", '"><script>')
