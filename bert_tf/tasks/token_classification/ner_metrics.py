"""Precision, recall and F1 of entities, as the CoNLL shared tasks' script (conlleval) defines them.

Computed by seqeval (Nakayama 2018), an optional dependency.
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.extras import import_extra

# Averages in seqeval's report; the first one is over all entities.
_ALL = "micro avg"
_AVERAGES = (_ALL, "macro avg", "weighted avg")
# Metric name -> its name in seqeval's report.
_SCORES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Scores entities, given the labels of each sentence in BIO, IOB1 or BIOES.

    Returns `precision`, `recall`, `f1` in [0, 1], 0 for 0/0, and `support`, the number of entities
    in `gold`: of all entities under "", then of each type in alphabetical order.
    """
    seqeval = import_extra("seqeval.metrics", "ner")
    labels = [[list(row) for row in rows] for rows in (gold, predicted)]
    report: dict[str, Any] = {_ALL: dict.fromkeys(_SCORES.values(), 0) | {"support": 0}}
    # Without entities, seqeval would divide by zero.
    if any(label != "O" for rows in labels for row in rows for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    return {
        name: {ours: float(values[theirs]) for ours, theirs in _SCORES.items()}
        | {"support": int(values["support"])}
        for name in ["", *sorted(report.keys() - set(_AVERAGES))]
        for values in [report[name or _ALL]]
    }
