"""Precision, recall and F1 of entities, which must have the right type, first and last word.

They equal those of the script of the CoNLL shared tasks (conlleval), and are computed by seqeval
(Nakayama 2018), an optional dependency.
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError

# Averages in the report of seqeval; the first one is over all entities.
_ALL = "micro avg"
_AVERAGES = (_ALL, "macro avg", "weighted avg")


def require_seqeval() -> Any:
    """Imports and returns `seqeval.metrics`.

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
    """Computes precision, recall and F1 of entities from the labels of each sentence.

    Labels are in BIO, IOB1 or BIOES. An `I-` that follows no entity of its type begins one, as in
    conlleval.

    Returns:
        `precision`, `recall`, `f1` in [0, 1], and `support`, the number of entities in `gold`: of
        all entities under "", then of each type in alphabetical order. A metric that would divide
        by zero is 0.
    """
    seqeval = require_seqeval()
    labels = [[list(row) for row in rows] for rows in (gold, predicted)]
    report: dict[str, Any] = {
        _ALL: dict.fromkeys(("precision", "recall", "f1-score", "support"), 0)
    }
    # Without any entity seqeval divides by zero.
    if any(label != "O" for rows in labels for row in rows for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    return {
        name: {
            "precision": float(values["precision"]),
            "recall": float(values["recall"]),
            "f1": float(values["f1-score"]),
            "support": int(values["support"]),
        }
        for name in ["", *sorted(report.keys() - set(_AVERAGES))]
        for values in [report[name or _ALL]]
    }
