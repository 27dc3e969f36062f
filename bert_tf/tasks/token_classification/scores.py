"""Scores of labeled words: whole entities, as in the CoNLL shared tasks, and single words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.extras import import_extra
from bert_tf.progress import log
from bert_tf.tasks.token_classification.schemes import OUTSIDE

# Metric name -> its name in seqeval's report.
_SCORES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}

Labels = Sequence[Sequence[str]]
Scores = Mapping[str, Mapping[str, float]]


def entity_scores(gold: Labels, predicted: Labels) -> dict[str, dict[str, float]]:
    """Scores entities as conlleval does, the script of the shared tasks; seqeval computes them.

    `gold` and `predicted` are the labels of each sentence in BIO, IOB1 or BIOES. Returns scores of
    all entities under the key "", then scores of each entity type, in alphabetical order:
    `precision`, `recall` and `f1`, each in [0, 1] and 0 if it is 0/0, and `support`, the number of
    entities in `gold`.
    """
    seqeval = import_extra("seqeval.metrics", "ner")
    labels = [[list(sentence) for sentence in sentences] for sentences in (gold, predicted)]
    report: dict[str, Any] = {"micro avg": dict.fromkeys([*_SCORES.values(), "support"], 0)}
    # Without entities, seqeval would divide by zero.
    if any(label != OUTSIDE for sentences in labels for row in sentences for label in row):
        report = seqeval.classification_report(*labels, output_dict=True, zero_division=0)
    types = sorted(report.keys() - {"micro avg", "macro avg", "weighted avg"})
    by_name = {"": report["micro avg"], **{name: report[name] for name in types}}
    return {
        name: {score: float(values[key]) for score, key in _SCORES.items()}
        | {"support": int(values["support"])}
        for name, values in by_name.items()
    }


def word_scores(
    gold: Labels, predicted: Labels, of_types: bool = False
) -> tuple[float, dict[str, dict[str, float]]]:
    """Scores the label of each word.

    Returns accuracy and, in the form of `entity_scores`, scores of each label. If `of_types`, the
    labels are those of entities, and a word is right if its entity type is; then the key "" has the
    scores of all words in entities, and O has none.
    """
    pairs = Counter(
        (_type_of(one), _type_of(other)) if of_types else (one, other)
        for row, predicted_row in zip(gold, predicted, strict=True)
        for one, other in zip(row, predicted_row, strict=True)
    )
    correct, support, found = Counter[str](), Counter[str](), Counter[str]()
    for (one, other), count in pairs.items():
        support[one] += count
        found[other] += count
        correct[one] += count * (one == other)
    accuracy = correct.total() / max(support.total(), 1)
    names = sorted((support.keys() | found.keys()) - ({OUTSIDE} if of_types else set()))
    scores = {name: _ratios(correct[name], found[name], support[name]) for name in names}
    if of_types:
        totals = (sum(counts[name] for name in names) for counts in (correct, found, support))
        scores = {"": _ratios(*totals)} | scores
    return accuracy, scores


def _type_of(label: str) -> str:
    # Entities of a single, unnamed type have the labels B and I.
    return label if label == OUTSIDE else label.partition("-")[2] or "entity"


def _ratios(correct: int, found: int, support: int) -> dict[str, float]:
    precision, recall = correct / max(found, 1), correct / max(support, 1)
    f1 = 2 * correct / max(found + support, 1)
    return {"precision": precision, "recall": recall, "f1": f1, "support": support}


def log_scores(scores: Scores, path: str, kind: str) -> None:
    """Logs a table of scores; `kind` is the heading of the first column."""
    width = max(map(len, (kind, *scores)))
    lines = [f"{kind:{width}}  precision  recall      f1  support"]
    for name, values in scores.items():
        ratios = f"{values['precision']:9.4f}  {values['recall']:6.4f}  {values['f1']:6.4f}"
        lines.append(f"{name or 'all':{width}}  {ratios}  {int(values['support']):7}")
    log.info("%s\n%s", path, "\n".join(lines))
