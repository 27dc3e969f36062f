"""Metrics of a report, with bootstrap intervals: metrics of rows that are drawn with replacement.

Efron 1979, "Bootstrap Methods: Another Look at the Jackknife". Shapes: N rows, L labels, T numbers
per row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.data.ranking_metrics import correlations
from bert_tf.report.evaluation import EvaluationReport

_MIN_RESAMPLES, _MAX_RESAMPLES = 200, 1000
# Rows that all resamples together have, unless these are `_MIN_RESAMPLES`: a second of computation.
_MAX_ROWS = 5_000_000
_PERCENTILES = (2.5, 97.5)
_NUM_BINS = 10


def metrics(report: EvaluationReport, weights: np.ndarray) -> dict[str, Any]:
    """Computes all metrics from rows that count `weights` [N] times; names have no `eval_`."""
    results = label_metrics(report, weights) if report.counts else {}
    if report.numbers:
        columns = zip(*(numbers.T for numbers in report.numbers), strict=True)
        scores = [correlations(true, predicted, weights) for true, predicted in columns]
        for name in ("pearson", "spearman"):  # 0 if a number is constant
            results[name] = np.mean(np.nan_to_num([x[f"eval_{name}"] for x in scores]))
    losses = {} if report.losses is None else {"loss": report.losses}
    right = {} if report.is_wrong is None else {"right": ~report.is_wrong}
    means = {**losses, **report.values, **right}
    return results | {name: np.average(x, weights=weights) for name, x in means.items()}


def label_metrics(report: EvaluationReport, weights: np.ndarray) -> dict[str, Any]:
    """Computes metrics of labels from rows that count `weights` [N] times; 0 if a metric is 0/0.

    Returns:
        `label_precision`, `label_recall`, `label_f1` and `label_support` [L]; numbers such as
        `f1_macro`, the mean of a metric over labels, and `f1_micro`, that of all labels together;
        `f1` etc., that of the positive label, or else micro; `accuracy`, the share of true labels
        that are predicted; `matthews`, which is meaningful with one label per row.
    """
    size = len(report.labels)
    true, found, right = (
        np.bincount(labels, weights[rows], minlength=size) for rows, labels in report.counts or ()
    )
    total, num_found, num_right = true.sum(), found.sum(), right.sum()
    ratios = {
        "precision": (_ratio(right, found), _ratio(num_right, num_found)),
        "recall": (_ratio(right, true), _ratio(num_right, total)),
        "f1": (_ratio(2 * right, true + found), _ratio(2 * num_right, total + num_found)),
    }
    results: dict[str, Any] = {"label_support": true, "label_predicted": found}
    for name, (of_labels, micro) in ratios.items():
        one = micro if report.positive is None else of_labels[report.positive]
        results |= {f"label_{name}": of_labels, f"{name}_macro": of_labels.mean()}
        results |= {f"{name}_micro": micro, name: one}
    variances = (total**2 - (true**2).sum()) * (total**2 - (found**2).sum())
    covariance = num_right * total - (true * found).sum()
    results["matthews"] = _ratio(covariance, np.sqrt(np.maximum(variances, 0.0)))
    return results | {"accuracy": results["recall_micro"]}


def _ratio(numerator: Any, denominator: Any) -> Any:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1e-300), 0.0)


def intervals(report: EvaluationReport) -> tuple[dict[str, np.ndarray], int]:
    """Returns the ends of 95% intervals, [2] or [2, L] by name, and the number of resamples.

    The seed is fixed, so that a report is always the same.
    """
    rng, num_rows = np.random.default_rng(0), len(report)
    most = _MAX_ROWS // (num_rows * (1 + 2 * len(report.labels) * bool(report.numbers)))
    count = min(max(most, _MIN_RESAMPLES), _MAX_RESAMPLES)
    draws = (rng.integers(num_rows, size=num_rows) for _ in range(count))
    samples = [metrics(report, np.bincount(x, minlength=num_rows).astype(float)) for x in draws]
    ends = {n: np.percentile([x[n] for x in samples], _PERCENTILES, axis=0) for n in samples[0]}
    return ends, count


def headline(report: EvaluationReport, ends: Mapping[str, np.ndarray]) -> str:
    """Summarizes the result in a sentence, beside the baseline; "" if the report has neither.

    `ends` are the 95% intervals that `intervals` returns.
    """
    found, parts = metrics(report, np.ones(len(report))), []
    total, predicted = [x.shape[1] for x in report.counts or ()][:2] or [len(report)] * 2
    name = "recall_micro" if report.counts else "right"
    if name in found:
        verb, (low, high) = "right" if total == predicted else "found", 100 * ends[name]
        interval = f" ({low:.0f} to {high:.0f} %)" * bool(low < high)
        number = f"{found[name] * total:,.0f} of {total:,}"
        parts.append(f"{number} {report.unit} {verb}{interval}")
    if total != predicted:
        precision = 100 * found["precision_micro"]
        parts.append(f"{precision:.0f} % of the {predicted:,} predicted ones are right")
    what, value, metric = report.baseline or ("", 0.0, "")
    if not what and report.counts and report.confusion and len(report.confusion[0]) == total > 0:
        value = np.bincount(report.confusion[0]).max() / total
        what = "always the most frequent label"
    if (metric or name) not in found:
        what = ""
    elif metric:
        own, (low, high) = f"{metric.replace('_', ' ')}: {found[metric]:.3g}", ends[metric]
        parts.append(f"{own} ({low:.3g} to {high:.3g}); {what}: {value:.3g}")
    elif what:
        parts.append(f"{what}: {100 * value:.0f} %")
    gain = found[metric or name] - value if what else 1.0
    is_better = gain < 0 if "error" in metric or metric == "loss" else gain > 0
    return "; ".join(parts) + ". The model is no better." * (not is_better)


def calibration(probabilities: np.ndarray, is_right: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns mean probability, accuracy and size of ten bins, and the mean distance of the first.

    Guo et al. 2017, "On Calibration of Modern Neural Networks". Bins [bins, 3] have equal widths;
    empty ones are left out. The distance is the expected calibration error.
    """
    bins = np.minimum((probabilities * _NUM_BINS).astype(int), _NUM_BINS - 1)
    counts, *sums = (
        np.bincount(bins, x, minlength=_NUM_BINS)
        for x in (np.ones(len(bins)), probabilities, is_right)
    )
    used = counts > 0
    means = [x[used] / counts[used] for x in sums]
    error = np.abs(means[0] - means[1]) @ counts[used] / max(counts.sum(), 1.0)
    return np.stack([*means, counts[used]], axis=1), float(error)
