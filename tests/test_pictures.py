"""The pictures in the docs show what the programs print and plot today.

`make pictures` draws them. `test_demo_script` in test_docs.py compares docs/demo.svg with the
output of the demo, which it runs anyway.
"""

import numpy as np
import pytest
from PIL import Image

from docs import pictures
from tests.oracle import ROOT
from tests.tasks.classification.test_plots import pixels


def test_each_picture_is_drawn_by_the_command():
    files = {path for ending in ("png", "svg") for path in ROOT.glob(f"docs/**/*.{ending}")}
    assert {str(path.relative_to(ROOT)) for path in files} == set(pictures.PICTURES)


def test_speed_plot_shows_the_results():
    name = "docs/speed.png"
    assert _difference(_read(name), pixels(pictures.PICTURES[name]())) < 0.005, "make pictures"


@pytest.mark.slow
def test_training_curve_has_the_labels_of_todays_plots():
    name = "docs/training_curve.png"
    expected, actual = pixels(pictures.PICTURES[name]()), _read(name)
    # Processors round differently, so only the labels and the legend are the same on all of them.
    for part in (np.s_[-45:], np.s_[:, :25], np.s_[:, -30:]):
        assert expected[part].min() < expected[part].max()
        assert _difference(actual[part], expected[part]) < 0.005, "make pictures"


@pytest.mark.slow
def test_report_has_the_headings_of_todays_reports():
    shown = Image.open(ROOT / "docs/report.png").info["Description"]
    page = pictures.training_files()["report.html"].decode()
    assert shown == pictures.headings(page), "make pictures"
    assert {"Confusion matrix", "Mistakes", "precision"} <= {*shown.splitlines()}


def test_terminal_picture_contains_its_lines():
    lines = ["$ make demo", "", "a < b & c", "   indented", "word " * 60, "x" * 250]
    svg = pictures.draw_terminal("a & b", lines)
    assert pictures.terminal_lines(svg) == lines
    # 300 and 250 characters wrap at 100 columns.
    assert svg.count(b"<tspan") == 4 + 3 + 3


def test_shape_ignores_numbers_bars_and_texts():
    lines = [
        "train: 250/250 |####  | 00:12<00:00, loss 0.0030, lr 1.20e-06, 9,587 tok/s",
        "82 of 100 reviews are labeled correctly. New ones:",
        "  positive  99.9%  The music is beautiful.",
    ]
    others = [
        "train: 250/250 |##########| 01:02<00:00, loss 0.31, lr 5e-07, 14,000.5 tok/s",
        "79 of 100 reviews are labeled correctly. New ones:",
        "  positive  97.0%  We loved it.",
    ]
    assert pictures.shape(lines) == pictures.shape(others)
    assert pictures.shape(lines) != pictures.shape([*others[:2], "  negative  97.0%  We loved it."])
    assert pictures.shape(lines) != pictures.shape(others[1:])


def _read(name: str) -> np.ndarray:
    return pixels((ROOT / name).read_bytes())


def _difference(image: np.ndarray, other: np.ndarray) -> float:
    """Returns the fraction of pixels that differ clearly; 1 if the sizes differ."""
    if image.shape != other.shape:
        return 1.0
    differences = np.abs(image.astype(np.int32) - other.astype(np.int32))
    return float(np.mean(differences.max(axis=-1) > 50))


def test_page_of_the_server_has_todays_labels():
    page = (ROOT / "bert_tf/serving/page.html").read_text(encoding="utf-8")
    labels = Image.open(ROOT / "docs/server_page.png").info["Description"].split("\n")
    assert {"Model", "Text", "Why?"} <= {*labels}
    assert all(label in page for label in labels), "make pictures"
