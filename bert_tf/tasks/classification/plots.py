"""The plot of a confusion matrix. matplotlib and scikit-learn are imported lazily."""

import io
import warnings
from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.classification.metrics import one_line

_DPI = 120
_MAX_LABEL_LENGTH = 20
# With more labels, cells are too small to contain numbers.
_MAX_LABELS_WITH_NUMBERS = 20
_MAX_INCHES = 14.0
# Fallbacks for characters that matplotlib's own font lacks.
_CJK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")


def plot_confusion_matrix(matrix: list[list[int]], labels: Sequence[str]) -> bytes:
    """Plots a confusion matrix [L, L], with a row for each true label, and returns a PNG.

    Colors show each cell's share of its row. With up to 20 labels, cells contain counts and shares.
    """
    # Not pyplot, which may open windows and whose state is shared by all threads.
    from matplotlib import font_manager
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    counts = np.array(matrix, np.int64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with_numbers = len(labels) <= _MAX_LABELS_WITH_NUMBERS
    inches = min(_MAX_INCHES, 1 + len(labels) * (0.7 if with_numbers else 0.25))
    figure = Figure(figsize=(inches, inches), dpi=_DPI)
    axes = figure.add_subplot()
    display = ConfusionMatrixDisplay(shares)
    # Most errors are a few percent of a row: the power scale makes them visible.
    heatmap_style = {"cmap": "Blues", "im_kw": {"norm": PowerNorm(0.5, 0, 1)}}
    display.plot(ax=axes, include_values=with_numbers, colorbar=not with_numbers, **heatmap_style)
    for index, text in np.ndenumerate(display.text_ if with_numbers else ()):
        count = f"{counts[index]:,}"
        text.set(text=f"{count}\n{shares[index]:.1%}", size=min(10, 60 / len(count)))
    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _CJK_FONTS if font in installed)]
    tick_style = {"parse_math": False, "family": fonts, "fontsize": 9}
    ticks, names = range(len(labels)), [one_line(label, _MAX_LABEL_LENGTH) for label in labels]
    axes.set_yticks(ticks, names, **tick_style)
    axes.set_xticks(ticks, names, rotation=45, ha="right", rotation_mode="anchor", **tick_style)
    total, correct = counts.sum(), np.trace(counts)
    accuracy = f" ({correct / total:.1%})" if total else ""
    axes.set_title(f"Confusion matrix\n{correct:,} of {total:,} correct{accuracy}", fontsize=11)
    png = io.BytesIO()
    with warnings.catch_warnings():
        # matplotlib warns about characters that no font has.
        warnings.simplefilter("ignore")
        figure.savefig(png, bbox_inches="tight", pad_inches=0.2, metadata={"Software": None})
    return png.getvalue()
