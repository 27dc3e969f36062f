"""Entity metrics, compared with a plain count."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.tasks.token_classification.schemes import to_bio
from bert_tf.tasks.token_classification.scores import entity_scores

LABELS = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), min_size=1, max_size=8)


def entity_spans(sentences):
    """Returns sentence, first word, last word and type of each entity."""
    entities = set()
    for row, labels in enumerate(sentences):
        first = None
        for index, label in enumerate([*labels, "O"]):
            if first is not None and label != f"I-{labels[first][2:]}":
                entities.add((row, first, index - 1, labels[first][2:]))
                first = None
            if first is None and label != "O":
                first = index
    return entities


def f1(gold, predicted):
    gold, predicted = entity_spans(gold), entity_spans(predicted)
    return 2 * len(gold & predicted) / max(len(gold) + len(predicted), 1)


@given(st.lists(st.tuples(LABELS, st.randoms(use_true_random=False)), min_size=1, max_size=5))
def test_metrics_equal_a_plain_count(rows):
    gold = [labels for labels, _ in rows]
    # Replace some labels.
    predicted = [
        [rng.choice([label, label, "O", "I-A", "B-B"]) for label in labels] for labels, rng in rows
    ]
    scores = entity_scores(gold, predicted)
    all_gold, all_predicted = entity_spans(gold), entity_spans(predicted)
    correct = all_gold & all_predicted
    assert scores[""]["precision"] == pytest.approx(len(correct) / max(len(all_predicted), 1))
    assert scores[""]["recall"] == pytest.approx(len(correct) / max(len(all_gold), 1))
    assert scores[""]["f1"] == pytest.approx(f1(gold, predicted))
    assert scores[""]["support"] == len(all_gold)
    names = {span[-1] for span in all_gold | all_predicted}
    assert list(scores) == ["", *sorted(names)]
    for name in names:
        assert scores[name]["support"] == sum(span[-1] == name for span in all_gold)


def test_label_schemes_give_the_same_metrics():
    bio = [["B-A", "I-A", "B-A", "O", "B-B"]]
    bioes = [["B-A", "E-A", "S-A", "O", "S-B"]]
    iob1 = [["I-A", "I-A", "B-A", "O", "I-B"]]
    for gold in (bio, bioes, iob1):
        for predicted in (bio, bioes, iob1):
            assert entity_scores(gold, predicted)[""]["f1"] == 1.0


IOB1 = st.lists(
    st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "I", "B"]), min_size=1, max_size=8),
    min_size=1,
    max_size=5,
)


@given(IOB1, st.randoms(use_true_random=False))
def test_converted_labels_score_as_in_the_file(gold, rng):
    starts = [0, *itertools.accumulate(map(len, gold))]
    bio = to_bio([label for row in gold for label in row], starts)
    converted = [bio[start:end] for start, end in itertools.pairwise(starts)]
    predicted = [[rng.choice([label, "O", "B-A", "I-B"]) for label in row] for row in converted]
    scores = entity_scores(gold, predicted)
    assert scores == entity_scores(converted, predicted)


def test_single_type_without_a_name():
    scores = entity_scores([["B", "I", "O", "B"]], [["B", "O", "O", "B"]])
    assert scores[""]["f1"] == 0.5


def test_missing_seqeval(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    with pytest.raises(UserError, match=r'package seqeval .*pip install "bert_tf\[ner\]"'):
        entity_scores([], [])
