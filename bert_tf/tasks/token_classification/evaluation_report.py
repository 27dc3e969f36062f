"""The report of an evaluation of labeled words: by entity type, or by plain label."""

from collections.abc import Sequence

import numpy as np

from bert_tf.extras import import_extra
from bert_tf.report.evaluation import Counts, EvaluationReport
from bert_tf.tasks.token_classification.entities import LabeledWords
from bert_tf.tasks.token_classification.scores import type_of


def make_report(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[LabeledWords],
    is_plain: bool,
    losses: np.ndarray | None,
) -> EvaluationReport:
    """Compares the labels of N sentences; `losses` [N]."""
    guesses = [sentence.labels for sentence in predicted]
    flat_gold, flat_guesses = ([x for row in rows for x in row] for rows in (gold, guesses))
    sentences = np.repeat(np.arange(len(gold)), [*map(len, gold)])
    kinds = [x if is_plain else type_of(x) for x in flat_gold]
    guessed_kinds = [x if is_plain else type_of(x) for x in flat_guesses]
    names = sorted({*kinds, *guessed_kinds})
    ids = {name: index for index, name in enumerate(names)}
    true, guess = (np.array([ids[x] for x in kind]) for kind in (kinds, guessed_kinds))
    right = np.array(flat_gold) == np.array(flat_guesses)
    if is_plain:
        of_words = Counts.of_classes(true, guess)
        counts = Counts(*(np.stack([sentences[rows], labels]) for rows, labels in of_words))
    else:
        sets = [_entities(rows, ids) for rows in (gold, guesses)]
        counts = Counts(*(_occurrences(x) for x in (*sets, sets[0] & sets[1])))
    probabilities = [np.asarray(sentence.probabilities) for sentence in predicted]
    words = [sentence.words for sentence in predicted]
    columns = {
        "text": [" ".join(row) for row in words],
        "label": [_format(*pair, is_plain) for pair in zip(words, gold, strict=True)],
        "prediction": [_format(*pair, is_plain) for pair in zip(words, guesses, strict=True)],
        "lowest_probability": [float(values.min(initial=1)) for values in probabilities],
    }
    return EvaluationReport(
        columns=columns,
        losses=losses,
        is_wrong=np.bincount(sentences[~right], minlength=len(gold)) > 0,
        values={} if losses is None else {"loss": losses},
        labels=names,
        counts=counts,
        confusion=(true, guess),
        confidence=(np.concatenate(probabilities), right),
    )


def _entities(rows: Sequence[Sequence[str]], ids: dict[str, int]) -> set[tuple[int, int, int, int]]:
    """Returns sentence, type id, and first and last word of each entity, as conlleval finds them."""
    sequences = import_extra("seqeval.metrics.sequence_labeling", "ner")
    starts = np.cumsum([0, *(len(row) + 1 for row in rows)])
    found = sequences.get_entities([[*row] for row in rows])
    sentences = np.searchsorted(starts, [first for _, first, _ in found], "right") - 1
    names = ("entity" if name == "_" else name for name, _, _ in found)
    places = ((first, last) for _, first, last in found)
    return {
        (int(sentence), ids[name], *place)
        for sentence, name, place in zip(sentences, names, places, strict=True)
    }


def _occurrences(entities: set[tuple[int, int, int, int]]) -> np.ndarray:
    return np.array(sorted(entities), int).reshape(-1, 4)[:, :2].T


def _format(words: Sequence[str], labels: Sequence[str], is_plain: bool) -> str:
    """Lists the entities of a sentence with their types, or its words with their labels."""
    if is_plain:
        return " ".join(f"{word}/{label}" for word, label in zip(words, labels, strict=True))
    entities = LabeledWords([*words], [*labels]).entities
    return "; ".join(f"{text} ({name or 'entity'})" for name, text in entities)
