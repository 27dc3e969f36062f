"""Figures of entities: a right one has the right kind, the right first and the right last word.

The figures are those of the script of the CoNLL shared tasks (conlleval), by seqeval (Nakayama
2018), an extra that is imported where it is needed.
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError

# What seqeval calls the figures of all kinds together, and their mean.
_ALL = "micro avg"
_MEANS = (_ALL, "macro avg", "weighted avg")


def require_seqeval() -> Any:
    """seqeval's metrics.

    Raises:
        UserError: it is not installed.
    """
    try:
        import seqeval.metrics
    except ImportError as error:
        raise UserError(
            f"Entities are scored by the package seqeval, which cannot be imported ({error}). "
            'Install it with: pip install ".[ner]"'
        ) from error
    return seqeval.metrics


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of entities.

    An `I-` that follows no entity of its kind begins one, as in conlleval.

    Args:
        gold: the labels of each sentence, in BIO, IOB1 or BIOES.
        predicted: the same number of labels.

    Returns:
        `precision`, `recall`, `f1` in [0, 1] and `support`, the number of entities in `gold`, of
        each kind, in alphabetical order, and, first, under the name "", of all entities together.
        A figure is 0 where there is nothing to divide by.

    Raises:
        UserError: seqeval is not installed.
    """
    seqeval = require_seqeval()
    labels = [[list(row) for row in rows] for rows in (gold, predicted)]
    report: dict[str, Any] = {
        _ALL: dict.fromkeys(("precision", "recall", "f1-score", "support"), 0)
    }
    # Without any entity seqeval divides by zero.
    if any(label != "O" for rows in labels for row in rows for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    kinds = ["", *sorted(name for name in report if name not in _MEANS)]
    return {kind: _figures(report[kind or _ALL]) for kind in kinds}


def _figures(found: dict[str, Any]) -> dict[str, float]:
    return {
        "precision": float(found["precision"]),
        "recall": float(found["recall"]),
        "f1": float(found["f1-score"]),
        "support": int(found["support"]),
    }
