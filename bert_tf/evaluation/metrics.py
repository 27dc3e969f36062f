"""Figures from labels and outputs of a model (NumPy)."""

import numpy as np


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
