"""The report of an evaluation of labeled words: by entity type, or by plain label."""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.report.evaluation import Counts, EvaluationReport
from bert_tf.tasks.token_classification.entities import LabeledWords, find_entities
from bert_tf.tasks.token_classification.scores import type_of
from bert_tf.tasks.token_classification.sentences import Sentences


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
    if not is_plain:  # The metrics are those of entities, as in `scores.entity_scores`.
        both = true, predicted
        parts = [
            {(row, *x) for row in rows for x in find_entities(part[row].labels)} for part in both
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
            "lowest_probability": [
                min(sentence.probabilities, default=1.0) for sentence in predicted
            ],
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
    """Lists the entities of a sentence with their types, or all words with their plain labels."""
    words = zip(sentence.labels, sentence.words, strict=True)
    pairs = words if sentence.is_plain else sentence.entities
    return "; ".join(f"{text} ({name or 'entity'})" for name, text in pairs)
