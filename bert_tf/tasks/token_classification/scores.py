"""Scores of labeled words: whole entities, as in the CoNLL shared tasks, and single words."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import note
from bert_tf.base.extras import import_extra
from bert_tf.report.evaluation import Counts, EvaluationReport
from bert_tf.tasks.token_classification.entities import LabeledWords, find_entities
from bert_tf.tasks.token_classification.schemes import OUTSIDE, type_of
from bert_tf.tasks.token_classification.sentences import Sentences

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


def score(
    gold: Labels, predicted: Labels, is_plain: bool
) -> tuple[dict[str, float], dict[str, Any], Scores]:
    """Scores whole entities, unless labels are plain, and single words.

    A word is right if its label is or, if labels mark entities, its entity type. Returns metrics;
    entries of `eval_results.json`; and the scores of each entity type, or each plain label.
    """
    name_of = str if is_plain else type_of
    words, found_words = ([name_of(x) for row in rows for x in row] for rows in (gold, predicted))
    support, found = Counter(words), Counter(found_words)
    correct = Counter(x for x, y in zip(words, found_words, strict=True) if x == y)
    accuracy = {"accuracy": correct.total() / max(support.total(), 1)}
    names = sorted((support.keys() | found.keys()) - (set() if is_plain else {OUTSIDE}))
    by_name = {name: _ratios(correct[name], found[name], support[name]) for name in names}
    if is_plain:
        return accuracy, {"words": accuracy | {"by_label": by_name}}, by_name
    totals = (sum(counts[name] for name in names) for counts in (correct, found, support))
    macro_f1 = float(np.mean([values["f1"] for values in by_name.values()] or [0.0]))
    f1 = {"micro_f1": _ratios(*totals)["f1"], "macro_f1": macro_f1}
    scores = entity_scores(gold, predicted)
    entities = {name: values for name, values in scores.items() if name}
    metrics = {name: scores[""][name] for name in _SCORES}
    return metrics, {"words": accuracy | f1 | {"by_type": by_name}, "entities": entities}, scores


def _ratios(correct: int, found: int, support: int) -> dict[str, float]:
    precision, recall = correct / max(found, 1), correct / max(support, 1)
    f1 = 2 * correct / max(found + support, 1)
    return {"precision": precision, "recall": recall, "f1": f1, "support": support}


def log_scores(scores: Scores, title: str, kind: str) -> None:
    """Logs a table of scores with a title; `kind` is the heading of the first column."""
    width = max(map(len, (kind, *scores)))
    lines = [f"{kind:{width}}  precision  recall      f1  support"]
    for name, values in scores.items():
        ratios = f"{values['precision']:9.4f}  {values['recall']:6.4f}  {values['f1']:6.4f}"
        lines.append(f"{name or 'all':{width}}  {ratios}  {int(values['support']):7}")
    note("\n".join([title, *lines]))


def make_report(
    examples: Sentences, predicted: Sequence[LabeledWords], losses: np.ndarray | None
) -> EvaluationReport:
    """Compares the labels of all sentences of a file; `losses` are those of their windows.

    The loss of a sentence is the mean of those of its windows.
    """
    if losses is not None:
        first = examples.windows.first_window
        losses = np.add.reduceat(losses, first[:-1]) / np.diff(first)
    starts = itertools.pairwise(examples.file.sentence_starts)
    gold = [examples.file.targets[first:stop] for first, stop in starts]
    is_plain, rows = predicted[0].is_plain, range(len(gold))
    true = [LabeledWords(predicted[row].words, [*gold[row]]) for row in rows]
    for sentence in true:
        sentence.is_plain = is_plain
    labels = [np.array([x for row in part for x in row.labels]) for part in (true, predicted)]
    kinds = [[x if is_plain else type_of(x) for x in column] for column in labels]
    names, ids = np.unique(kinds, return_inverse=True)
    true_ids, predicted_ids = ids.reshape(2, -1)
    sentences, right = np.repeat(rows, [*map(len, gold)]), labels[0] == labels[1]
    counts = Counts.of_classes(true_ids, predicted_ids, sentences)
    if not is_plain:  # The metrics are those of entities, as in `entity_scores`.
        parts = [
            {(row, *x) for row in rows for x in find_entities(part[row].labels)}
            for part in (true, predicted)
        ]
        id_of = {name: index for index, name in enumerate(names)}
        found = (sorted(part) for part in (*parts, parts[0] & parts[1]))
        pairs = ([(row, id_of[name or "entity"]) for row, name, *_ in part] for part in found)
        counts = Counts(*(np.array(part, int).reshape(-1, 2).T for part in pairs))
    return EvaluationReport(
        columns={
            "text": [" ".join(sentence.words) for sentence in predicted],
            "label": [*map(_format, true)],
            "prediction": [*map(_format, predicted)],
            "lowest_probability": [min(x.probabilities, default=1.0) for x in predicted],
        },
        losses=losses,
        is_wrong=np.bincount(sentences, ~right, len(gold)) > 0,
        labels=names.tolist(),
        counts=counts,
        confusion=(true_ids, predicted_ids),
        confidence=(np.concatenate([s.probabilities for s in predicted]), right),
        unit="words" if is_plain else "entities",
    )


def _format(sentence: LabeledWords) -> str:
    words = zip(sentence.labels, sentence.words, strict=True)
    pairs = words if sentence.is_plain else sentence.entities
    return "; ".join(f"{text} ({name or 'entity'})" for name, text in pairs)
