"""Warnings about a split: unusual labels, and texts that also occur in the training set."""

import pytest

from bert_tf.data.features import InputExample
from bert_tf.tasks.classification.checks import check
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.options import (
    CLASSIFICATION,
    MULTILABEL,
    REGRESSION,
    ClassifierOptions,
)
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


def test_single_label():
    expected = ["train.tsv: all 3 rows have the label 'a'. Check the label column"]
    assert (
        check_messages(FakeDataset(["a", "b"]), "train", make_rows("a", "a", "a"), []) == expected
    )
    expected = ["dev.tsv: all 2 rows have the label '1.5'. Check the label column"]
    assert (
        check_messages(FakeDataset([], REGRESSION), "eval", make_rows("1.5", "1.5"), []) == expected
    )
    assert check_messages(FakeDataset(["a", "b"]), "eval", make_rows("a"), []) == []


def test_nearly_identical_labels():
    labels = ["Positive", "negative", "positive", "not spam", "notspam", "a", "a\u200b", "01", "1"]
    labels += ["10", "100", "0"]  # are different
    (message,) = check_messages(FakeDataset(labels), "train", make_rows(*labels), [])
    assert message == (
        "train.tsv: labels that differ only in case, white space, invisible or composed "
        "characters, or leading zeros: 'Positive', 'positive', 'not spam', 'notspam', 'a', "
        "'a\\u200b', '01', '1'"
    )
    labels = ["b\u00fcro", "bu\u0308ro", "buro"]
    (message,) = check_messages(FakeDataset(labels), "train", make_rows(*labels), [])
    assert message.endswith("leading zeros: 'b\u00fcro', 'bu\u0308ro'")


def test_labels_missing_from_training():
    training = make_rows("a", "b")
    messages = check_messages(
        FakeDataset(["a", "b", "c", "d"]), "eval", make_rows("a", "d", "c", text="x"), training
    )
    assert messages == ["dev.tsv: no row of the training set has the label c, d"]
    multi_label_splits = [
        make_rows(*x, text="xy"[n]) for n, x in enumerate([[("a",), ("b", "c"), ()], [(), ("d",)]])
    ]
    messages = check_messages(
        FakeDataset(["a", "b", "c", "d"], MULTILABEL),
        "eval",
        multi_label_splits[1],
        multi_label_splits[0],
    )
    assert messages == ["dev.tsv: no row of the training set has the label d"]
    assert (
        check_messages(
            FakeDataset([], REGRESSION), "eval", make_rows("1", "2", text="x"), make_rows("3", "4")
        )
        == []
    )


def test_texts_with_different_labels():
    training = [*make_rows("a", "b"), *make_rows("b"), *make_rows(*["a"] * 17, text="x")]
    messages = check_messages(FakeDataset(["a", "b"]), "train", [*training, *make_rows("c")], [])
    assert messages == [
        "train.tsv: 3 of 21 rows (14.3%) repeat a text with a different label, such as "
        "'text 0': a, b, c. Check the labels"
    ]
    assert check_messages(FakeDataset(["a", "b"]), "train", training, []) == []
    assert (
        check_messages(
            FakeDataset(["a", "b"], is_published=True),
            "train",
            make_rows("a", "b") + make_rows("b"),
            [],
        )
        == []
    )
    assert (
        check_messages(
            FakeDataset([], REGRESSION), "train", make_rows("1", "2") + make_rows("3"), []
        )
        == []
    )
    several = [*make_rows(("a",), ("a", "b")), *make_rows(("b",))]
    (message,) = check_messages(FakeDataset(["a", "b"], MULTILABEL), "train", several, [])
    assert "2 of 3 rows (66.7%)" in message


def make_examples(*texts):
    return [InputExample("", text, None, "a") for text in texts]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([InputExample("", "x", "a", "a"), InputExample("", "y", "B", "b")], "2 of 2 texts are la"),
        (make_examples("a", "b", *["a film"] * 2), None),
        (make_examples("A", "b", "a film"), "2 of 3 texts are labels, such as 'A'. Check the text"),
    ],
)
def test_suspicious_texts(examples, message):
    messages = check_messages(FakeDataset(["a", "b"]), "predict", examples, [])
    assert [message in text for text in messages] == [True] * bool(message)


@pytest.mark.parametrize(
    ("labels", "problem_type", "message"),
    [
        (["a", "none"], CLASSIFICATION, None),
        (["'a'", "b"], CLASSIFICATION, None),
        (["Austin, TX", "Dallas, TX", "Paris, France"], CLASSIFICATION, None),
        (["a", "nan"], CLASSIFICATION, "there is a label 'nan'"),
        (["-", "neutral", "yes"], CLASSIFICATION, "there is a label '-'. If it means no label"),
        ([r"\N", "no", "yes"], CLASSIFICATION, "a label '\\\\N'. If it means no label"),
        (["?", "N/A", "a", "b"], CLASSIFICATION, "'?' and 'N/A'. If .* pass --skip_labels=?,N/A)"),
        (["-1", "0", "1", "2"], CLASSIFICATION, "there is a label '-1'. If it means no label"),
        (["-1", "0", "1"], CLASSIFICATION, None),
        (["+", "-"], CLASSIFICATION, None),
        (["+", "-", "neutral"], CLASSIFICATION, None),
        (["😀", "😡", "none"], CLASSIFICATION, None),
        (["['a'", "'b']"], MULTILABEL, "Python list. Write lists as a,b"),
        (["a,b", "a,c", "b,c", "a,b,c"], CLASSIFICATION, "pass --problem_type=multilabel"),
        (["a", "a;b", "b", "c;a"], CLASSIFICATION, "'a;b' .* --label_separator=';'"),
        (["a", "a,b", "b"], CLASSIFICATION, "'a,b' is read as one label. If it is a list"),
        (["a|b", "b", "c|a|b"], CLASSIFICATION, "'a|b' .* --label_separator='|'"),
        (["a", "a;c", "b"], CLASSIFICATION, None),
        (["a/b", "a", "b", "a/c"], CLASSIFICATION, None),
        (["New York, NY", "Albany, NY", "Salem, OR", "Bend, OR"], CLASSIFICATION, None),
        (["Cause(e1,e2)", "Cause(e2,e1)", "Part(e1,e2)", "Part(e2,e1)"], CLASSIFICATION, None),
        (["['a', 'b']", "['b', 'a']"], CLASSIFICATION, "Python list"),
    ],
)
def test_probably_misread_labels(labels, problem_type, message):
    messages = check_messages(FakeDataset(labels, problem_type), "train", make_rows("x", "y"), [])
    parts = (message or "").split(".* ")
    assert [all(part in text for part in parts) for text in messages] == [True] * bool(message)


@pytest.mark.parametrize(
    ("labels", "problem_type", "metric"),
    [
        (["a", "b"], CLASSIFICATION, "matthews"),
        (["a", "b"], MULTILABEL, "accuracy"),
        ([], REGRESSION, "spearman"),
    ],
)
def test_primary_metric(labels, problem_type, metric):
    kind = PROBLEM_TYPES[problem_type]
    names = kind(FakeDataset(labels, problem_type), ClassifierOptions()).metric_names
    metric_names = kind(
        FakeDataset(labels, problem_type, primary_metric=metric), ClassifierOptions()
    ).metric_names
    assert metric_names == [metric, *(name for name in names if name != metric)]
