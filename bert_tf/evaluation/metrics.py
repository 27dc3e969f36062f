"""Figures from labels and outputs of a model (NumPy; correlations by SciPy, an extra)."""

from typing import Any

import numpy as np

from bert_tf.errors import UserError


def classification_metrics(
    probabilities: np.ndarray,
    label_ids: np.ndarray,
    per_example_loss: np.ndarray,
    is_real_example: np.ndarray,
) -> dict[str, np.float32]:
    """Accuracy and mean loss, under the original's names.

    Args:
        probabilities: [rows, labels].
        label_ids: [rows].
        per_example_loss: [rows].
        is_real_example: [rows], 0 for rows that only fill up a batch; they do not count.

    Returns:
        `eval_accuracy` in [0, 1] and `eval_loss`.
    """
    weights = is_real_example.astype(np.float64)
    correct = np.argmax(probabilities, axis=-1) == label_ids
    return {
        "eval_accuracy": np.float32(np.average(correct, weights=weights)),
        "eval_loss": np.float32(np.average(per_example_loss, weights=weights)),
    }


def require_scipy() -> Any:
    """SciPy's statistics.

    Raises:
        UserError: it is not installed.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise UserError(
            f"Correlations are computed by the package scipy, which cannot be imported ({error}). "
            'Install it with: pip install ".[metrics]"'
        ) from error
    return stats


def regression_metrics(
    values: np.ndarray, label_ids: np.ndarray, per_example_loss: np.ndarray
) -> dict[str, np.float32]:
    """Correlations of numbers with those that are right, and the mean loss.

    Args:
        values: [rows].
        label_ids: [rows]; what is right.
        per_example_loss: [rows].

    Returns:
        `eval_pearson` and `eval_spearman` in [-1, 1], 0 where either side is always the same
        number; `eval_loss`.

    Raises:
        UserError: SciPy is not installed.
    """
    stats = require_scipy()
    pearson = spearman = 0.0
    if np.ptp(values) > 0 and np.ptp(label_ids) > 0:
        pearson = stats.pearsonr(values.astype(np.float64), label_ids).statistic
        spearman = stats.spearmanr(values, label_ids).statistic
    return {
        "eval_pearson": np.float32(pearson),
        "eval_spearman": np.float32(spearman),
        "eval_loss": np.float32(per_example_loss.mean(dtype=np.float64)),
    }
