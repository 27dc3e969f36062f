"""Metrics of a report as functions of row weights, and their bootstrap intervals.

Shapes: N rows, L labels, T numbers per row. Efron 1979, "Bootstrap Methods: Another Look at the
Jackknife": a metric of rows drawn with replacement, many times, shows how much chance is in it.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.report.evaluation import EvaluationReport

_MAX_RESAMPLES, _MIN_RESAMPLES = 1000, 200
# Rows that all resamples together have, at most: a second of computation.
_MAX_ROWS = 5_000_000
_PERCENTILES = (2.5, 97.5)
_NUM_BINS = 10


def label_metrics(report: EvaluationReport, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Computes metrics of labels from rows that count `weights` [N] times.

    Returns:
        `label_precision`, `label_recall`, `label_f1` and `label_support` [L]; and numbers: their
        `..._macro` mean, `..._micro` over all labels, and `precision`, `recall` and `f1` of the
        positive label, or micro; `accuracy`, the share of labels that are predicted; `matthews`,
        for one label per row. A ratio is 0 if it is 0/0.
    """
    size = len(report.labels)
    true, found, right = (
        np.bincount(labels, weights[rows], minlength=size) for rows, labels in report.counts or ()
    )
    sums = {"label": (true, found, right)}
    sums["micro"] = (true.sum(), found.sum(), right.sum())
    metrics = {"label_support": true, "label_predicted": found}
    for kind, (t, f, r) in sums.items():
        precision, recall, f1 = _ratio(r, f), _ratio(r, t), _ratio(2 * r, t + f)
        for name, value in (("precision", precision), ("recall", recall), ("f1", f1)):
            metrics[f"label_{name}" if kind == "label" else f"{name}_micro"] = value
    for name in ("precision", "recall", "f1"):
        of_labels = metrics[f"label_{name}"]
        metrics[f"{name}_macro"] = of_labels.mean()
        is_micro = report.positive is None
        metrics[name] = metrics[f"{name}_micro"] if is_micro else of_labels[report.positive]
    metrics["accuracy"] = metrics["recall_micro"]
    total, correct = true.sum(), right.sum()
    squares = (total**2 - (x**2).sum() for x in (true, found))
    covariance = correct * total - (true * found).sum()
    metrics["matthews"] = _ratio(covariance, np.sqrt(np.maximum(np.prod([*squares]), 0)))
    return metrics


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1e-300), 0.0)


def metrics(report: EvaluationReport, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Computes all metrics of a report from rows that count `weights` [N] times."""
    results = label_metrics(report, weights) if report.counts else {}
    if report.numbers:
        columns = [x.astype(np.float64).T for x in report.numbers]
        scores = [_correlations(*pair, weights) for pair in zip(*columns, strict=True)]
        results["pearson"], results["spearman"] = np.mean(scores, axis=0)
    for name, values in report.values.items():
        results[name] = np.average(values, weights=weights)
    return results


def _correlations(true: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> list[float]:
    """Returns Pearson's and Spearman's correlation; 0 if either number is always the same."""
    scores = []
    ranks = [_ranks(x, weights) for x in (true, predicted)]
    for x, y in ((true, predicted), ranks):
        x, y = (values - np.average(values, weights=weights) for values in (x, y))
        xx, yy, xy = (np.dot(weights, product) for product in (x * x, y * y, x * y))
        scores.append(xy / np.sqrt(xx * yy) if xx * yy > 0 else 0.0)
    return scores


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the mean rank of each value among rows that are repeated `weights` times."""
    _, groups = np.unique(values, return_inverse=True)
    counts = np.bincount(groups, weights)
    return (np.cumsum(counts) - counts / 2)[groups]


class Intervals(NamedTuple):
    """95% intervals of metrics by name, [2] or [2, L], and the number of resamples."""

    by_name: dict[str, np.ndarray]
    resamples: int


def intervals(report: EvaluationReport) -> Intervals:
    """Computes percentile intervals; they are the same in each call, because the seed is fixed."""
    rng, num_rows = np.random.default_rng(0), len(report)
    size = 1 + len(report.labels) * bool(report.numbers)
    limit = _MAX_ROWS // max(num_rows * size, 1)
    count = min(max(limit, _MIN_RESAMPLES), _MAX_RESAMPLES)
    draws = (rng.integers(num_rows, size=num_rows) for _ in range(count))
    samples = [
        metrics(report, np.bincount(draw, minlength=num_rows).astype(np.float64)) for draw in draws
    ]
    names = samples[0]
    by_name = {n: np.percentile([s[n] for s in samples], _PERCENTILES, axis=0) for n in names}
    return Intervals(by_name, count)


def calibration(probabilities: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Returns bins of probabilities: count, mean probability, share of correct ones; [bins, 3].

    Bins have equal widths; those without a prediction are left out. Guo et al. 2017, "On
    Calibration of Modern Neural Networks".
    """
    bins = np.minimum((probabilities * _NUM_BINS).astype(int), _NUM_BINS - 1)
    columns = (np.ones(len(bins)), probabilities, is_right)
    counts, *sums = (np.bincount(bins, x, minlength=_NUM_BINS) for x in columns)
    used = counts > 0
    return np.stack([counts[used], *(x[used] / counts[used] for x in sums)], axis=1)


def calibration_error(bins: np.ndarray) -> float:
    """Returns the expected calibration error: the mean gap between probability and accuracy."""
    counts, probability, accuracy = bins.T
    return float(np.average(np.abs(probability - accuracy), weights=counts))
