"""Metrics of classification, multi-label classification and regression; the confusion matrix.

Accuracy and loss are the original BERT code's, computed with NumPy. scikit-learn, SciPy and
matplotlib are imported lazily, because importing them takes a second.

N rows, L labels: `probabilities` [N, L]; `label_ids` [N], or [N, L] of 0 and 1 if multi-label;
`per_example_loss` [N]; N is at least 1. Ratios with a zero denominator are 0.
"""

import contextlib
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.charts import to_png
from bert_tf.base.errors import warn

# Multi-label: a label is predicted if its probability is at least this.
THRESHOLD = 0.5
# Fewer predictions may be alike by chance.
MIN_ROWS = 20
# Regression: a smaller fraction of the spread of the labels is practically constant.
_MIN_SPREAD = 0.01

_MAX_LABELS_IN_TABLE = 20
_MAX_LABEL_WIDTH = 40
# Our name of a metric -> its name in scikit-learn's report.
_REPORT_NAMES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}

# The plot. With more labels, cells are too small to contain numbers.
_MAX_LABELS_WITH_NUMBERS = 20
_MAX_PLOTTED_WIDTH = 20
_MAX_INCHES = 14.0
# Fallbacks for characters that matplotlib's own font lacks.
_CJK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")


def classification_metrics(
    probabilities: np.ndarray, label_ids: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, np.float32]:
    """Computes the metrics of single-label classification.

    Returns:
        `eval_accuracy` and `eval_loss`, as in the original; for two labels also `eval_f1`,
        `eval_precision` and `eval_recall` of the second label; `eval_f1_macro`, `eval_f1_micro`,
        `eval_precision_macro` and `eval_recall_macro` over all L labels, whether they occur or not;
        `eval_matthews`, Matthews' correlation coefficient.
    """
    true, predicted, report = _make_report(probabilities, label_ids)
    positive = _select_scores(report["1"]) if probabilities.shape[-1] == 2 else {}
    accuracy = np.mean(true == predicted)
    with _ignore_warnings():
        from sklearn.metrics import matthews_corrcoef

        matthews = matthews_corrcoef(true, predicted)
    # With one true and one predicted label per row, micro averages are the accuracy.
    values = {"accuracy": accuracy, "f1_micro": accuracy, "matthews": matthews}
    macro = _select_scores(report["macro avg"], "_macro")
    return _add_loss(per_example_loss, values | positive | macro)


def multilabel_metrics(
    probabilities: np.ndarray, label_ids: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, np.float32]:
    """Computes the metrics of multi-label classification.

    Returns:
        `eval_accuracy`, the fraction of rows whose labels are all correct; `eval_loss`;
        `eval_f1_micro`, `eval_precision_micro` and `eval_recall_micro` over all pairs of a row and
        a label; `eval_f1_macro`, the mean over labels.
    """
    true, predicted, report = _make_report(probabilities, label_ids)
    accuracy = np.mean((true == predicted).all(axis=-1))
    values = {"accuracy": accuracy, "f1_macro": report["macro avg"]["f1-score"]}
    return _add_loss(per_example_loss, values | _select_scores(report["micro avg"], "_micro"))


def regression_metrics(
    values: np.ndarray, label_ids: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, np.float32]:
    """Compares predicted values [N], or [N, L] of L targets, with the true values in `label_ids`.

    Returns:
        Means over the targets: `eval_pearson` and `eval_spearman`, 0 if predicted or true values
        are all equal or not all finite; `eval_loss`; `eval_mean_absolute_error`.
    """
    if values.ndim == 2:
        columns = zip(values.T, label_ids.T, strict=True)
        scores = [regression_metrics(*column, per_example_loss) for column in columns]
        return {name: np.float32(np.mean([s[name] for s in scores])) for name in scores[0]}
    values, label_ids = values.astype(np.float64), label_ids.astype(np.float64)
    pearson = spearman = 0.0
    finite = np.isfinite(values).all() and np.isfinite(label_ids).all()
    spread, label_spread = (np.ptp(x) if finite else 0.0 for x in (values, label_ids))
    if spread < _MIN_SPREAD * label_spread:
        found = (f"from {x.min():.4g} to {x.max():.4g}" for x in (values, label_ids))
        warn("all predictions are {}, but the labels {}".format(*found))
    if spread > 0 and label_spread > 0:
        with _ignore_warnings():
            from scipy import stats

            pearson = stats.pearsonr(values, label_ids).statistic
            spearman = stats.spearmanr(values, label_ids).statistic
    # NumPy, because scikit-learn rejects values that are not finite.
    error = np.abs(values - label_ids).mean()
    metrics = {"pearson": pearson, "spearman": spearman, "mean_absolute_error": error}
    return _add_loss(per_example_loss, metrics)


def classification_report(
    probabilities: np.ndarray, label_ids: np.ndarray, labels: Sequence[str]
) -> dict[str, Any]:
    """Computes the metrics of each label, and, for single-label tasks, the confusion matrix.

    Returns:
        A JSON-serializable dict. `labels` maps each name to `precision`, `recall`, `f1` and
        `support`, the number of rows with that label; `confusion_matrix` [L, L] has the number of
        rows for each true label (first index) and predicted label (second index).
    """
    true, predicted, report = _make_report(probabilities, label_ids)
    scores = {
        label: _select_scores(report[str(index)]) | {"support": int(report[str(index)]["support"])}
        for index, label in enumerate(labels)
    }
    if label_ids.ndim == 2:
        return {"labels": scores}
    with _ignore_warnings():
        from sklearn.metrics import confusion_matrix

        matrix = confusion_matrix(true, predicted, labels=range(len(labels)))
    return {"labels": scores, "confusion_matrix": matrix.tolist()}


def describe_report(report: Mapping[str, Any]) -> str:
    """Formats the metrics of each label, at most 20, as a table for the log."""
    labels = report["labels"]
    rows: list[tuple[str, ...]] = [("label", *_REPORT_NAMES, "support")]
    for name, scores in list(labels.items())[:_MAX_LABELS_IN_TABLE]:
        ratios = (f"{scores[column]:.4f}" for column in _REPORT_NAMES)
        rows.append((one_line(name, _MAX_LABEL_WIDTH), *ratios, str(scores["support"])))
    width = max(_display_width(name) for name, *_ in rows)
    lines = [
        name + " " * (width - _display_width(name)) + "  {:>9}  {:>6}  {:>6}  {:>7}".format(*cells)
        for name, *cells in rows
    ]
    num_omitted = len(labels) - _MAX_LABELS_IN_TABLE
    if num_omitted > 0:
        lines.append(f"and {num_omitted} more label{'s' * (num_omitted > 1)}")
    return "\n".join(lines)


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
    figure = Figure(figsize=(inches, inches), dpi=120)
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
    ticks, names = range(len(labels)), [one_line(label, _MAX_PLOTTED_WIDTH) for label in labels]
    axes.set_yticks(ticks, names, **tick_style)
    axes.set_xticks(ticks, names, rotation=45, ha="right", rotation_mode="anchor", **tick_style)
    total, correct = counts.sum(), np.trace(counts)
    accuracy = f" ({correct / total:.1%})" if total else ""
    axes.set_title(f"Confusion matrix\n{correct:,} of {total:,} correct{accuracy}", fontsize=11)
    with warnings.catch_warnings():
        # matplotlib warns about characters that no font has.
        warnings.simplefilter("ignore")
        return to_png(figure, bbox_inches="tight", pad_inches=0.2)


def one_line(text: str, max_length: int) -> str:
    """Replaces white space and unprintable characters by a space; shortens with an ellipsis."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    text = " ".join(printable.split())
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


def _display_width(text: str) -> int:
    """Returns the width in terminal columns; wide East Asian characters take two."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def _make_report(
    probabilities: np.ndarray, label_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns true and predicted label ids [N] or indicators [N, L + 1], and scikit-learn's report.

    The keys of the report are label ids as strings, "macro avg" etc.
    """
    if label_ids.ndim == 1:
        true, predicted = label_ids.astype(np.int64), np.argmax(probabilities, axis=-1)
    else:
        # The last column is zero, because scikit-learn would read a single column as class ids.
        indicators = (x.astype(np.int8) for x in (label_ids, probabilities >= THRESHOLD))
        true, predicted = (np.pad(x, ((0, 0), (0, 1))) for x in indicators)
    with _ignore_warnings():
        from sklearn import metrics

        settings = {"labels": range(probabilities.shape[-1]), "output_dict": True}
        report = metrics.classification_report(true, predicted, **settings, zero_division=0)
    return true, predicted, report


@contextlib.contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Suppresses warnings about undefined metrics, which are set to 0 here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _select_scores(entry: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """Selects metrics from an entry of scikit-learn's report, and renames them."""
    return {f"{name}{suffix}": entry[their_name] for name, their_name in _REPORT_NAMES.items()}


def _add_loss(losses: np.ndarray, metrics: Mapping[str, Any]) -> dict[str, np.float32]:
    """Adds the mean loss, and the prefix `eval_`; float32 keeps printed metrics short."""
    metrics = {**metrics, "loss": np.mean(losses, dtype=np.float64)}
    # A mean absolute error may exceed the range of float32, and becomes infinite.
    with np.errstate(over="ignore"):
        return {f"eval_{name}": np.float32(value) for name, value in metrics.items()}
