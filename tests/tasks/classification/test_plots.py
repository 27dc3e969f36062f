"""The plot of a confusion matrix is a valid, non-empty PNG for any input."""

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.classification import metrics
from tests.oracle import ROOT

ODD_LABELS = [
    "$a_b$",
    "$",
    "x_1^",
    "\\alpha{",
    "\\",
    "电影很好看",
    "two\nlines",
    "a label with a very long name",
    "",
    "_hidden",
    "\N{GRINNING FACE}\N{VARIATION SELECTOR-16}",
    "e\N{COMBINING ACUTE ACCENT}",
    "\x00\t\x1b\ud800",
    "سلام שלום",
    "한국어 हिन्दी ไทย",
]


@pytest.fixture(autouse=True)
def _warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def pixels(png):
    """Decodes a PNG to [height, width, 3] and checks that it is not blank."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    image = tf.io.decode_png(png, channels=3).numpy()
    assert len(np.unique(image @ [65536, 256, 1])) > 2
    # An empty margin shows that nothing is cut off.
    edges = (image[0], image[-1], image[:, 0], image[:, -1])
    assert all((edge == 255).all() for edge in edges)
    return image


def matrix(labels):
    counts = np.arange(labels**2).reshape(labels, labels) % 7
    return (counts + 50 * np.eye(labels, dtype=int)).tolist()


@pytest.mark.parametrize("labels", [1, 3, 20, 21, 130])
def test_confusion_matrices_of_any_size(labels):
    names = [f"label {n}" for n in range(labels)]
    image = pixels(metrics.plot_confusion_matrix(matrix(labels), names))
    assert image.shape[0] < 2200
    assert image.shape[1] < 2200


def test_plot_size_grows_with_the_matrix():
    sizes = [
        pixels(metrics.plot_confusion_matrix(matrix(labels), ["x"] * labels)).shape[0]
        for labels in (1, 2, 8, 16)
    ]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("counts", [[[0, 0], [0, 0]], [[0, 0], [3, 0]], [[10**9, 1], [0, 10**9]]])
def test_unusual_counts(counts):
    pixels(metrics.plot_confusion_matrix(counts, ["no", "yes"]))


def test_labels_are_drawn_verbatim():
    pixels(metrics.plot_confusion_matrix(matrix(len(ODD_LABELS)), ODD_LABELS))
    # Different labels give different plots, even if no font has their characters.
    names = [["$a$", "b"], ["a", "b"], ["好", "b"], ["b", "好"]]
    images = [metrics.plot_confusion_matrix(matrix(2), labels) for labels in names]
    assert len(set(images)) == len(images)


def test_higher_cells_are_darker():
    image = pixels(metrics.plot_confusion_matrix([[99, 0], [5, 95]], ["", ""]))
    colors, counts = np.unique(image.reshape(-1, 3), axis=0, return_counts=True)
    # White and four cells with distinct shares, from pale to dark blue.
    common = colors[np.argsort(counts)[-5:]].astype(int)
    brightness = sorted(common.sum(axis=1))
    assert brightness[1] < 350
    assert brightness[2] > 550
    assert (common[:, 2] >= common[:, 0]).all()


def test_plots_are_thread_safe():
    def draw(_):
        return metrics.plot_confusion_matrix(matrix(3), ["a", "b", "c"])

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(8)))) == 1


def test_matplotlib_state_is_unchanged_and_missing_glyphs_do_not_warn():
    code = (
        "import logging; logging.basicConfig(level=logging.WARNING);"
        "from bert_tf.tasks.classification import metrics; import matplotlib;"
        # rcParams.items() would look for a display.
        "before = list(dict.items(matplotlib.rcParams));"
        "metrics.plot_confusion_matrix([[1, 0], [0, 1]], ['电影', 'ไทย']);"
        "assert list(dict.items(matplotlib.rcParams)) == before;"
        "from matplotlib import pyplot; print(pyplot.get_fignums())"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (process.stdout.strip(), process.stderr) == ("[]", "")
