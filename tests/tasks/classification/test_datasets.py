"""Warnings about a split: unusual labels, and texts that also occur in the training set."""

import pytest

from bert_tf.data.features import InputExample
from bert_tf.options import ClassifierOptions
from bert_tf.tasks.classification.checks import check
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.options import CLASSIFICATION, MULTILABEL, REGRESSION
from bert_tf.tasks.classification.problem_types import PROBLEM_TYPES


class FakeDataset(TextDataset):
    """An in-memory dataset with a training and a dev split."""

    name = "task x"

    def __init__(self, labels, problem_type=CLASSIFICATION, **attributes):
        self.labels, self.problem_type = labels, problem_type
        vars(self).update(attributes)

    def read(self, split):
        raise NotImplementedError

    def describe(self, split):
        return "train.tsv" if split == "train" else "dev.tsv"


def make_rows(*labels, text="text"):
    return [InputExample("", f"{text} {row}", None, label) for row, label in enumerate(labels)]


def check_messages(*args):
    return list(check(*args))


def test_valid_dataset_does_not_warn():
    data = FakeDataset(["a", "b"])
    training = make_rows("a", "b", "a")
    assert check_messages(data, "train", training, training) == []
    assert check_messages(data, "eval", make_rows("b", "a", text="other"), training) == []
    assert check_messages(data, "predict", make_rows(None, None, text="other"), training) == []


PAIRS = [InputExample("", "x", "a", "a"), InputExample("", "y", "b", "b")]
TRAINING = [*make_rows("a", "b"), *make_rows("b"), *make_rows(*["a"] * 3, text="x")]


@pytest.mark.parametrize(
    ("labels", "kind", "split", "examples", "train", "expected"),
    [
        ("ab", CLASSIFICATION, "train", make_rows("a", "a"), [], "in all 2 rows, the label is 'a'"),
        ("ab", CLASSIFICATION, "eval", make_rows("a"), [], None),
        ("", REGRESSION, "eval", make_rows("1.5", "1.5"), [], "in all 2 rows, the label is '1.5'"),
        ("ab", CLASSIFICATION, "train", TRAINING, [], "2 of 6 rows repeat a text with another"),
        ("", REGRESSION, "train", make_rows("1", "2") + make_rows("3"), [], None),
        ("ab", CLASSIFICATION, "train", PAIRS, [], "the second text is the label in 2 of 2 rows"),
        ("abcd", CLASSIFICATION, "eval", make_rows("a", "d", "c"), TRAINING, "2 of 3 labels are"),
        ("abc", MULTILABEL, "eval", make_rows(("a",), ("c",)), make_rows(("a",)), "1 of 2 labels"),
        ("", REGRESSION, "eval", make_rows("1", "2"), make_rows("3", "4"), None),
        (["A", "a"], CLASSIFICATION, "train", make_rows("A", "a"), [], "labels that differ only"),
        (["-", "b", "c"], CLASSIFICATION, "train", make_rows("b", "c"), [], "--skip_labels"),
        (["-1", "0", "1", "2"], CLASSIFICATION, "train", make_rows("0", "1"), [], "--skip_labels"),
        (["-1", "0", "1"], CLASSIFICATION, "train", make_rows("0", "1"), [], None),
        (["+", "-", "neutral"], CLASSIFICATION, "train", make_rows("+", "-"), [], None),
    ],
)
def test_what_looks_wrong(labels, kind, split, examples, train, expected):
    messages = check_messages(FakeDataset([*labels], kind), split, examples, train)
    assert [expected in text for text in messages] == [True] * bool(expected)


def test_published_data_sets_may_contradict_themselves():
    data = FakeDataset(["a", "b"], is_published=True)
    assert not check_messages(data, "train", TRAINING, [])


@pytest.mark.parametrize(
    ("labels", "problem_type", "metric"),
    [
        (["a", "b"], CLASSIFICATION, "matthews"),
        (["a", "b"], MULTILABEL, "accuracy"),
        ([], REGRESSION, "spearman"),
    ],
)
def test_primary_metric(labels, problem_type, metric):
    def metric_names(**attributes):
        data = FakeDataset(labels, problem_type, **attributes)
        return PROBLEM_TYPES[problem_type](data, ClassifierOptions()).metric_names

    names = metric_names()
    assert metric_names(primary_metric=metric) == [
        metric,
        *(name for name in names if name != metric),
    ]
