"""What is said about a whole split: its labels, and texts that are in the training set, too."""

import logging

import pytest

from bert_tf.data.features import InputExample
from bert_tf.errors import UserError
from bert_tf.tasks.classification.datasets import (
    CLASSIFICATION,
    MULTILABEL,
    REGRESSION,
    TextDataset,
    check_split,
)
from bert_tf.tasks.classification.options import ClassifierOptions
from bert_tf.tasks.classification.problem_types import PROBLEM_TYPES


class Set(TextDataset):
    """A set of two files."""

    name = "task x"

    def __init__(self, labels, problem_type=CLASSIFICATION, **attributes):
        self.labels, self.problem_type = labels, problem_type
        vars(self).update(attributes)

    def read(self, split):
        raise NotImplementedError

    def describe(self, split):
        return "train.tsv" if split == "train" else "dev.tsv"


def rows(*labels, text="text"):
    return [InputExample("", f"{text} {row}", None, label) for row, label in enumerate(labels)]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "bert_tf")

    def said(*args):
        caplog.clear()
        check_split(*args)
        return [(each.levelname, each.getMessage()) for each in caplog.records]

    return said


def test_a_set_that_is_right(said):
    data = Set(["a", "b"])
    training = rows("a", "b", "a")
    assert said(data, "train", training, training) == []
    assert said(data, "eval", rows("b", "a", text="other"), training) == []
    assert said(data, "predict", rows(None, None, text="other"), training) == []


def test_one_label_only(said):
    expected = [("WARNING", "train.tsv: all 3 rows have the label 'a'. Check the label column")]
    assert said(Set(["a", "b"]), "train", rows("a", "a", "a"), []) == expected
    expected = [("WARNING", "dev.tsv: all 2 rows have the label '1.5'. Check the label column")]
    assert said(Set([], REGRESSION), "eval", rows("1.5", "1.5"), []) == expected
    assert said(Set(["a", "b"]), "eval", rows("a"), []) == []


def test_labels_that_are_hardly_different(said):
    labels = ["Positive", "negative", "positive", "not spam", "notspam"]
    ((level, message),) = said(Set(labels), "train", rows(*labels), [])
    assert level == "WARNING"
    assert message == (
        "train.tsv: labels that differ only in case or white space: 'Positive', 'positive', "
        "'not spam', 'notspam'"
    )


def test_labels_that_the_training_lacks(said):
    training = rows("a", "b")
    found = said(Set(["a", "b", "c", "d"]), "eval", rows("a", "d", "c", text="x"), training)
    assert found == [("WARNING", "dev.tsv: no row of the training set has the label c, d")]
    several = [
        rows(*x, text=str(n)) for n, x in enumerate([[("a",), ("b", "c"), ()], [(), ("d",)]])
    ]
    found = said(Set(["a", "b", "c", "d"], MULTILABEL), "eval", several[1], several[0])
    assert found == [("WARNING", "dev.tsv: no row of the training set has the label d")]
    assert said(Set([], REGRESSION), "eval", rows("1", "2", text="x"), rows("3", "4")) == []


def test_rows_that_are_also_in_the_training_set(said):
    training = rows("a", "b", *["a"] * 198)
    others = rows(*["a", "b"] * 99, text="x")
    message = "dev.tsv: 3 of 201 rows to evaluate on (1.5%) have the text of a training row"
    assert said(Set(["a", "b"]), "eval", others + rows("b", "b", "b"), training) == [
        ("WARNING", message)
    ]
    # Nobody can change a published one.
    published = Set(["a", "b"], is_published=True)
    assert said(published, "eval", others + rows("b", "b", "b"), training) == [("INFO", message)]
    assert said(Set(["a", "b"]), "eval", others + rows("b", "b"), training) == []
    # The second texts count, too.
    pair = [InputExample("", "text 0", "other", "a"), InputExample("", "text 1", "other", "b")]
    assert said(Set(["a", "b"]), "eval", pair, training) == []


def test_rows_that_were_kept_of_the_training_file_are_no_mistake(said):
    data = Set(["a", "b"], holds_out=True)
    data.describe = lambda split: "all.tsv"
    ((level, message),) = said(data, "eval", rows("a", "b"), rows("b", "a"))
    assert (level, message[:41]) == ("INFO", "all.tsv: 2 of 2 rows to evaluate on (100.")


def test_the_training_file_as_a_dev_file_is_a_mistake(said):
    data = Set(["a", "b"])
    data.describe = lambda split: "all.tsv"
    ((level, message),) = said(data, "eval", rows("a", "b"), rows("b", "a"))
    assert (level, message[:41]) == ("WARNING", "all.tsv: 2 of 2 rows to evaluate on (100.")


def test_texts_with_different_labels(said):
    training = [*rows("a", "b"), *rows("b"), *rows(*["a"] * 17, text="x")]
    found = said(Set(["a", "b"]), "train", [*training, *rows("c")], [])
    assert found == [
        (
            "WARNING",
            "train.tsv: 3 of 21 rows (14.3%) have texts with different labels, such as 'text 0': "
            "a, b, c. Check the labels",
        )
    ]
    assert said(Set(["a", "b"]), "train", training, []) == []
    assert said(Set(["a", "b"], is_published=True), "train", rows("a", "b") + rows("b"), []) == []
    assert said(Set([], REGRESSION), "train", rows("1", "2") + rows("3"), []) == []
    several = [*rows(("a",), ("a", "b")), *rows(("b",))]
    ((_, message),) = said(Set(["a", "b"], MULTILABEL), "train", several, [])
    assert "2 of 3 rows (66.7%)" in message


def test_numbers_on_another_scale(said):
    training = rows("0", "0.5", "1")
    found = said(Set([], REGRESSION), "eval", rows("1", "80", "11", "-11", text="x"), training)
    assert found == [
        (
            "WARNING",
            "dev.tsv: 2 of 4 labels, such as 80, are far outside of 0 to 1 in training. "
            "Check their scale",
        )
    ]
    assert said(Set([], REGRESSION), "eval", rows("-9", "11", text="x"), training) == []
    assert said(Set([], REGRESSION), "eval", rows("5", "6", text="x"), rows("1", "1")) == []


def texts(*found):
    return [InputExample("", text, None, "a") for text in found]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (texts("a film", "none", *["the story"] * 30), None),
        (texts("in 1999", "42", "a film", "7 of 10"), None),
        (
            texts("1000001", "1,000", "-2.5", "a film"),
            "3 of 4 texts are numbers, such as '1000001'",
        ),
        (texts("NaN", "a film", "the story"), "1 of 3 texts are missing values, such as 'NaN'"),
    ],
)
def test_texts_that_are_none(said, given, message):
    found = said(Set(["a", "b"]), "predict", given, [])
    assert [message in text for _, text in found] == [True] * bool(message)


@pytest.mark.parametrize(
    ("labels", "problem_type", "message"),
    [
        (["a", "none"], CLASSIFICATION, None),
        (["'a'", "b"], CLASSIFICATION, None),
        (["Austin, TX", "Dallas, TX", "Paris, France"], CLASSIFICATION, None),
        (["a", "nan"], CLASSIFICATION, "there is a label 'nan'"),
        (["['a'", "'b']"], MULTILABEL, "part of a Python list"),
        (["a,b", "a,c", "b,c", "a,b,c"], CLASSIFICATION, "pass --problem_type=multilabel"),
    ],
)
def test_labels_that_are_probably_misread(said, labels, problem_type, message):
    found = said(Set(labels, problem_type), "train", rows("x", "y"), [])
    assert [message in text for _, text in found] == [True] * bool(message)


@pytest.mark.parametrize(
    ("labels", "problem_type", "metric"),
    [
        (["a", "b"], CLASSIFICATION, "matthews"),
        (["a", "b"], MULTILABEL, "accuracy"),
        ([], REGRESSION, "spearman"),
    ],
)
def test_the_primary_metric(labels, problem_type, metric):
    kind = PROBLEM_TYPES[problem_type]
    names = kind(Set(labels, problem_type), ClassifierOptions()).metric_names
    found = kind(Set(labels, problem_type, primary_metric=metric), ClassifierOptions()).metric_names
    assert found == (metric, *(name for name in names if name != metric))
    expected = f"task x: primary_metric must be one of {', '.join(names)}, not 'mathews'"
    with pytest.raises(UserError, match=expected):
        kind(Set(labels, problem_type, primary_metric="mathews"), ClassifierOptions())
