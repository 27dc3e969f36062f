"""Figures from labels and outputs of a model.

Accuracy and loss are the original's, by NumPy. The others are by scikit-learn and SciPy, imported
where they are needed: that takes a second, and who only trains does not need them.
"""

import contextlib
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

# A text has a label of several when that is at least so likely.
THRESHOLD = 0.5

# For people: in the log.
_MOST_LABELS = 20
_LONGEST_LABEL = 40
_COLUMNS = ("precision", "recall", "f1", "support")


def classification_metrics(
    probabilities: np.ndarray,
    label_ids: np.ndarray,
    per_example_loss: np.ndarray,
    is_real_example: np.ndarray,
) -> dict[str, np.float32]:
    """Accuracy and mean loss, under the original's names, and how good the labels are.

    Args:
        probabilities: [rows, labels].
        label_ids: [rows].
        per_example_loss: [rows].
        is_real_example: [rows], 0 for rows that only fill up a batch; they do not count. At least
            one row does.

    Returns:
        `eval_accuracy` in [0, 1] and `eval_loss`. Of two labels, `eval_f1`, `eval_precision` and
        `eval_recall` of the second one. In any case `eval_f1_macro`, `eval_f1_micro`,
        `eval_precision_macro` and `eval_recall_macro` in [0, 1], over all labels, also those that
        no row has; `eval_matthews`, Matthews' correlation, in [-1, 1]. A figure is 0 where there
        is nothing to divide by.
    """
    weights = is_real_example.astype(np.float64)
    correct = np.argmax(probabilities, axis=-1) == label_ids
    found = {
        "eval_accuracy": np.average(correct, weights=weights),
        "eval_loss": np.average(per_example_loss, weights=weights),
    }
    right, predicted = _real_labels(probabilities, label_ids, is_real_example)
    labels = range(probabilities.shape[-1])
    if len(labels) == 2:
        second = _scores(right, predicted, labels)[1]
        found |= {f"eval_{name}": second[name] for name in ("f1", "precision", "recall")}
    macro = _scores(right, predicted, labels, "macro")[0]
    micro = _scores(right, predicted, labels, "micro")[0]
    with _no_warnings():
        from sklearn.metrics import matthews_corrcoef

        found |= {
            "eval_f1_macro": macro["f1"],
            "eval_f1_micro": micro["f1"],
            "eval_precision_macro": macro["precision"],
            "eval_recall_macro": macro["recall"],
            "eval_matthews": matthews_corrcoef(right, predicted),
        }
    return _float32(found)


def classification_report(
    probabilities: np.ndarray,
    label_ids: np.ndarray,
    is_real_example: np.ndarray,
    labels: Sequence[str],
) -> dict[str, Any]:
    """The figures of each label, and which ones are taken for which.

    Args:
        probabilities: [rows, labels].
        label_ids: [rows].
        is_real_example: [rows], 0 for rows that do not count.
        labels: their names.

    Returns:
        What JSON can hold: `labels`, with `precision`, `recall`, `f1` in [0, 1] and `support`, how
        many rows have it, under the name of each; `confusion_matrix`, how many rows have the label
        of a row of the matrix and were given the label of a column.
    """
    right, predicted = _real_labels(probabilities, label_ids, is_real_example)
    places = range(len(labels))
    scores = _scores(right, predicted, places)
    with _no_warnings():
        from sklearn.metrics import confusion_matrix

        matrix = confusion_matrix(right, predicted, labels=list(places))
    return {
        "labels": dict(zip(labels, scores, strict=True)),
        "confusion_matrix": matrix.tolist(),
    }


def regression_metrics(
    values: np.ndarray, label_ids: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, np.float32]:
    """Correlations of numbers with those that are right, and how far they are from them.

    Args:
        values: [rows].
        label_ids: [rows]; what is right.
        per_example_loss: [rows].

    Returns:
        `eval_pearson` and `eval_spearman` in [-1, 1], 0 where either side is always the same
        number or has one that is not finite; `eval_loss`; `eval_mean_absolute_error`.
    """
    values, label_ids = values.astype(np.float64), label_ids.astype(np.float64)
    pearson = spearman = 0.0
    finite = np.isfinite(values).all() and np.isfinite(label_ids).all()
    if finite and np.ptp(values) > 0 and np.ptp(label_ids) > 0:
        with _no_warnings():
            from scipy import stats

            pearson = stats.pearsonr(values, label_ids).statistic
            spearman = stats.spearmanr(values, label_ids).statistic
    return _float32(
        {
            "eval_pearson": pearson,
            "eval_spearman": spearman,
            "eval_loss": per_example_loss.mean(dtype=np.float64),
            # Not scikit-learn's, which refuses numbers that are not finite.
            "eval_mean_absolute_error": np.abs(values - label_ids).mean(),
        }
    )


def multilabel_metrics(
    probabilities: np.ndarray,
    label_ids: np.ndarray,
    per_example_loss: np.ndarray,
    is_real_example: np.ndarray,
) -> dict[str, np.float32]:
    """Figures where a row has any number of labels.

    Args:
        probabilities: [rows, labels], each one for itself.
        label_ids: [rows, labels], 1 for those that a row has and 0 for others.
        per_example_loss: [rows].
        is_real_example: [rows], 0 for rows that only fill up a batch; they do not count.

    Returns:
        `eval_accuracy`, the share of rows that are right in all labels; `eval_loss`;
        `eval_f1_micro`, `eval_precision_micro` and `eval_recall_micro`, which count all labels of
        all rows alike; `eval_f1_macro`, the mean over labels. A figure is 0 where there is nothing
        to divide by.
    """
    weights = is_real_example.astype(np.float64)
    correct = ((probabilities >= THRESHOLD) == (label_ids != 0)).all(axis=-1)
    right, predicted = _real_sets(probabilities, label_ids, is_real_example)
    labels = range(probabilities.shape[-1])
    micro = _scores(right, predicted, labels, "micro")[0]
    return _float32(
        {
            "eval_accuracy": np.average(correct, weights=weights),
            "eval_loss": np.average(per_example_loss, weights=weights),
            "eval_f1_micro": micro["f1"],
            "eval_f1_macro": _scores(right, predicted, labels, "macro")[0]["f1"],
            "eval_precision_micro": micro["precision"],
            "eval_recall_micro": micro["recall"],
        }
    )


def multilabel_report(
    probabilities: np.ndarray,
    label_ids: np.ndarray,
    is_real_example: np.ndarray,
    labels: Sequence[str],
) -> dict[str, Any]:
    """The figures of each label, where a row has any number of them.

    Args:
        probabilities: [rows, labels].
        label_ids: [rows, labels] of 0 and 1.
        is_real_example: [rows], 0 for rows that do not count.
        labels: their names.

    Returns:
        `labels`, as in `classification_report`.
    """
    right, predicted = _real_sets(probabilities, label_ids, is_real_example)
    scores = _scores(right, predicted, range(len(labels)))
    return {"labels": dict(zip(labels, scores, strict=True))}


def describe_report(report: Mapping[str, Any]) -> str:
    """The figures of labels as a table for people.

    Args:
        report: of `classification_report` or `multilabel_report`.

    Returns:
        Lines without an end of line after the last one: names of the columns, the first 20
        labels, and how many more there are.
    """
    found = report["labels"]
    rows: list[tuple[str, ...]] = [("label", *_COLUMNS)]
    for name, scores in list(found.items())[:_MOST_LABELS]:
        shares = (f"{scores[column]:.4f}" for column in _COLUMNS[:-1])
        rows.append((one_line(name, _LONGEST_LABEL), *shares, str(scores["support"])))
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join((name + " " * (widths[0] - _width(name)), *aligned)))
    more = len(found) - _MOST_LABELS
    if more > 0:
        lines.append(f"and {more} more label{'s' * (more > 1)}")
    return "\n".join(lines)


def one_line(text: str, longest: int) -> str:
    """A text that fits into a table or a picture.

    Args:
        text: any.
        longest: at least 1; how many characters it may have.

    Returns:
        The text with a blank for each run of white space, cut with an ellipsis if it is too long.
    """
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _width(text: str) -> int:
    """How many places of a terminal a text takes: Chinese characters take two."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def _real_labels(
    probabilities: np.ndarray, label_ids: np.ndarray, is_real_example: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The labels that are right and those that are likeliest, of rows that count."""
    real = is_real_example.astype(bool)
    return label_ids[real].astype(np.int64), np.argmax(probabilities[real], axis=-1)


def _real_sets(
    probabilities: np.ndarray, label_ids: np.ndarray, is_real_example: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which labels are right and which are likely enough, of rows that count: [rows, labels + 1].

    The last label belongs to no row and is not asked for. scikit-learn takes a single column for
    the labels of a classification.
    """
    real = is_real_example.astype(bool)
    both = (label_ids[real] != 0, probabilities[real] >= THRESHOLD)
    right, predicted = (np.pad(labels.astype(np.int8), ((0, 0), (0, 1))) for labels in both)
    return right, predicted


def _scores(
    right: np.ndarray, predicted: np.ndarray, labels: range, average: str | None = None
) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of each label, or the one average of them."""
    with _no_warnings():
        from sklearn.metrics import precision_recall_fscore_support

        found = precision_recall_fscore_support(
            right, predicted, labels=list(labels), average=average, zero_division=0
        )
    *shares, support = (np.atleast_1d(figures) for figures in found)
    rows = zip(*(figures.tolist() for figures in shares), strict=True)
    # An average has no support.
    return [
        dict(zip(_COLUMNS, (*row, int(count or 0)), strict=True))
        for row, count in zip(rows, support, strict=True)
    ]


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Keeps back what libraries say of numbers for which the figures here have a definition."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _float32(figures: Mapping[str, Any]) -> dict[str, np.float32]:
    """The figures as they are written: `str` of a float32 has the shortest digits."""
    # A mistake may be too large for it.
    with np.errstate(over="ignore"):
        return {name: np.float32(figure) for name, figure in figures.items()}
