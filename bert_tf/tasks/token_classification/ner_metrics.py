"""Precision, recall and F1 of entities, as defined by conlleval, the script of the CoNLL tasks.

seqeval (Nakayama 2018), an optional dependency, computes them.
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.extras import import_extra

# Averages in seqeval's report; the micro average is over all entities.
_ALL = "micro avg"
_AVERAGES = (_ALL, "macro avg", "weighted avg")
# Metric name -> its name in seqeval's report.
_SCORES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Scores entities, given the labels of each sentence in BIO, IOB1 or BIOES.

    Returns scores of all entities under the key "", then scores of each entity type, in
    alphabetical order: `precision`, `recall` and `f1`, each in [0, 1] and 0 if it is 0/0, and
    `support`, the number of entities in `gold`.
    """
    seqeval = import_extra("seqeval.metrics", "ner")
    labels = [[list(sentence) for sentence in sentences] for sentences in (gold, predicted)]
    report: dict[str, Any] = {_ALL: dict.fromkeys(_SCORES.values(), 0) | {"support": 0}}
    # Without entities, seqeval would divide by zero.
    if any(label != "O" for sentences in labels for row in sentences for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    return {
        name: {score: float(values[key]) for score, key in _SCORES.items()}
        | {"support": int(values["support"])}
        for name in ["", *sorted(report.keys() - set(_AVERAGES))]
        for values in [report[name or _ALL]]
    }
