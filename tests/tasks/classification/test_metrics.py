"""Classification metrics, compared with hand-computed values and plain formulas."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tasks.classification import metrics
from tests.oracle import ROOT


@pytest.fixture(autouse=True)
def _warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def make_outputs(targets, predicted, labels):
    """Returns model outputs that yield these predictions."""
    return {
        "probabilities": np.float32(0.1) + np.eye(labels, dtype=np.float32)[predicted] / 2,
        "label_ids": np.int32(targets),
    }


def compute_metrics(targets, predicted, labels):
    outputs = make_outputs(targets, predicted, labels)
    losses = np.ones(len(targets), np.float32)
    actual = metrics.classification_metrics(per_example_loss=losses, **outputs)
    assert {type(metric) for metric in actual.values()} == {np.float32}
    return actual


def test_binary_classification():
    # Label 1: 3 predicted, 2 of them correct; support 4.
    actual = compute_metrics([1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 0, 0, 0], 2)
    expected = {
        "eval_accuracy": 5 / 8,
        "eval_loss": 1,
        "eval_f1": 4 / 7,
        "eval_precision": 2 / 3,
        "eval_recall": 2 / 4,
        "eval_f1_macro": (4 / 7 + 6 / 9) / 2,
        "eval_f1_micro": 5 / 8,
        "eval_precision_macro": (2 / 3 + 3 / 5) / 2,
        "eval_recall_macro": (2 / 4 + 3 / 4) / 2,
        "eval_matthews": (2 * 3 - 1 * 2) / np.sqrt(3 * 4 * 4 * 5),
    }
    assert actual == pytest.approx(expected)
    # Files contain the shortest decimal representation.
    assert str(actual["eval_precision"]) == "0.6666667"


def test_three_labels_with_one_absent():
    actual = compute_metrics([0, 0, 1, 1], [0, 1, 1, 1], 3)
    assert "eval_f1" not in actual
    assert actual["eval_f1_macro"] == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert actual["eval_precision_macro"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert actual["eval_recall_macro"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert actual["eval_f1_micro"] == actual["eval_accuracy"] == 0.75


@pytest.mark.parametrize(
    ("targets", "predicted", "labels", "accuracy", "macro"),
    [
        ([0, 0, 0], [0, 0, 0], 1, 1, 1),
        ([0, 0, 0], [0, 0, 0], 2, 1, 1 / 2),
        ([1, 1, 1], [1, 1, 1], 2, 1, 1 / 2),
        ([0, 1], [1, 1], 2, 1 / 2, (0 + 2 / 3) / 2),
        ([0, 0, 1, 1], [1, 1, 0, 0], 2, 0, 0),
        ([2], [2], 3, 1, 1 / 3),
        # Nearly as many labels as rows, which scikit-learn mistakes for regression.
        (list(range(30)), list(range(30)), 40, 1, 30 / 40),
    ],
)
def test_degenerate_cases(targets, predicted, labels, accuracy, macro):
    actual = compute_metrics(targets, predicted, labels)
    assert actual["eval_accuracy"] == actual["eval_f1_micro"] == accuracy
    assert actual["eval_f1_macro"] == pytest.approx(macro)
    if len(set(targets)) == 1 or len(set(predicted)) == 1:
        assert actual["eval_matthews"] == 0
    elif not accuracy:
        assert actual["eval_matthews"] == -1
        assert {name for name, x in actual.items() if x} == {"eval_loss", "eval_matthews"}


def test_nan_outputs():
    nans = np.full((2, 2), np.nan, np.float32)
    actual = metrics.classification_metrics(nans, np.array([0, 1]), nans[0])
    assert np.isnan(actual["eval_loss"])
    assert actual["eval_accuracy"] == 0.5


def test_classification_report():
    outputs = make_outputs([0, 0, 0, 1, 2], [0, 0, 1, 1, 1], 3)
    report = metrics.classification_report(**outputs, labels=["a", "b", "c"])
    assert report["confusion_matrix"] == [[2, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert list(report["labels"]) == ["a", "b", "c"]
    assert report["labels"]["a"] == pytest.approx(
        {"precision": 1, "recall": 2 / 3, "f1": 4 / 5, "support": 3}
    )
    assert report["labels"]["b"] == pytest.approx(
        {"precision": 1 / 3, "recall": 1, "f1": 1 / 2, "support": 1}
    )
    assert report["labels"]["c"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}
    assert json.loads(json.dumps(report)) == report


LABELS = st.integers(0, 4)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1), st.integers(5, 7))
def test_random_classifications(pairs, labels):
    targets, predicted = (list(column) for column in zip(*pairs, strict=True))
    scores = compute_metrics(targets, predicted, labels)
    names = [str(label) for label in range(labels)]
    report = metrics.classification_report(**make_outputs(targets, predicted, labels), labels=names)
    matrix = np.array(report["confusion_matrix"])
    assert matrix.sum() == len(targets)
    assert scores["eval_accuracy"] == pytest.approx(np.trace(matrix) / matrix.sum())
    assert scores["eval_f1_micro"] == pytest.approx(scores["eval_accuracy"])
    num_involved = matrix.sum(axis=0) + matrix.sum(axis=1)
    f1 = 2 * np.diag(matrix) / np.maximum(num_involved, 1)
    assert [report["labels"][name]["f1"] for name in names] == pytest.approx(f1)
    assert [report["labels"][name]["support"] for name in names] == matrix.sum(axis=1).tolist()
    assert scores["eval_f1_macro"] == pytest.approx(f1.mean())
    assert 0 <= scores["eval_f1_macro"] <= 1
    assert -1 <= scores["eval_matthews"] <= 1


def test_regression_metrics():
    targets = np.float32([1, 2, 3, 4])
    values, losses = np.float32([1, 10, 100, 1000]), np.float32([1, 2, 3, 6])
    expected = {
        "eval_pearson": np.corrcoef(values, targets)[0, 1],
        "eval_spearman": 1,
        "eval_loss": 3,
        "eval_mean_absolute_error": (0 + 8 + 97 + 996) / 4,
    }
    assert metrics.regression_metrics(values, targets, losses) == pytest.approx(expected)
    negated = metrics.regression_metrics(-targets, targets, targets)
    assert negated["eval_pearson"] == negated["eval_spearman"] == -1


@pytest.mark.parametrize(
    "values",
    [[2, 2, 2], [np.nan, 1, 2], [np.inf, -np.inf, 2], [np.inf] * 3, [np.nan] * 3],
)
def test_undefined_correlation(values):
    targets = np.float32([1, 2, 3])
    values = np.float32(values)
    for actual in (
        metrics.regression_metrics(values, targets, np.square(values)),
        metrics.regression_metrics(targets, 0 * targets, targets),
        metrics.regression_metrics(targets[:1], targets[:1], targets[:1]),
    ):
        assert actual["eval_pearson"] == actual["eval_spearman"] == 0
    actual = metrics.regression_metrics(values, targets, targets)["eval_mean_absolute_error"]
    assert np.isfinite(actual) == np.isfinite(values).all()


def test_nearly_constant_or_very_large_values():
    targets = np.float32([1, 2, 3])
    nearly_constant = metrics.regression_metrics(1e6 + targets * 1e-8, targets, targets)
    assert np.isfinite(nearly_constant["eval_pearson"])
    large = metrics.regression_metrics(np.float32([-3e38, 0, 3e38]), -targets * 1e38, targets)
    assert large["eval_pearson"] == pytest.approx(-1)


def make_multi_label_outputs(targets, predicted):
    return {
        "probabilities": np.where(np.array(predicted), np.float32(0.5), np.float32(0.49)),
        "label_ids": np.int32(targets),
    }


def test_multi_label_metrics():
    outputs = make_multi_label_outputs(
        [[1, 0, 1], [0, 1, 0], [0, 0, 0]], [[1, 0, 1], [1, 1, 0], [0, 0, 0]]
    )
    losses = np.float32([1, 2, 6])
    actual = metrics.multilabel_metrics(per_example_loss=losses, **outputs)
    # Three of four predicted labels are correct, and all three true labels are predicted.
    assert actual == pytest.approx(
        {
            "eval_accuracy": 2 / 3,
            "eval_loss": 3,
            "eval_f1_micro": 6 / 7,
            "eval_f1_macro": (2 / 3 + 1 + 1) / 3,
            "eval_precision_micro": 3 / 4,
            "eval_recall_micro": 1,
        }
    )
    report = metrics.classification_report(**outputs, labels=["a", "b", "c"])
    assert list(report) == ["labels"]
    assert list(report["labels"]) == ["a", "b", "c"]
    assert report["labels"]["a"] == pytest.approx(
        {"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "support": 1}
    )
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_multi_label_without_positive_labels(labels):
    no_labels = np.zeros((3, labels), int)
    for predicted, accuracy in ((no_labels, 1), (no_labels + 1, 0)):
        outputs = make_multi_label_outputs(no_labels, predicted)
        actual = metrics.multilabel_metrics(per_example_loss=np.ones(3), **outputs)
        assert actual.pop("eval_accuracy") == accuracy
        assert actual.pop("eval_loss") == 1
        assert set(actual.values()) == {0}
        names = [str(label) for label in range(labels)]
        report = metrics.classification_report(**outputs, labels=names)
        assert [report["labels"][name]["support"] for name in names] == [0] * labels


@given(st.integers(1, 4), st.lists(st.integers(0, 255), min_size=1))
def test_random_multi_labels(labels, codes):
    bits = np.array([[code >> bit & 1 for bit in range(8)] for code in codes])
    targets, predicted = bits[:, :labels], bits[:, 4 : 4 + labels]
    outputs = make_multi_label_outputs(targets, predicted)
    actual = metrics.multilabel_metrics(per_example_loss=np.ones(len(codes)), **outputs)
    hits, num_predicted, support = (targets & predicted), predicted.sum(axis=0), targets.sum(axis=0)
    assert actual["eval_accuracy"] == pytest.approx((targets == predicted).all(axis=1).mean())
    assert actual["eval_precision_micro"] == pytest.approx(hits.sum() / max(num_predicted.sum(), 1))
    assert actual["eval_recall_micro"] == pytest.approx(hits.sum() / max(support.sum(), 1))
    f1 = 2 * hits.sum(axis=0) / np.maximum(num_predicted + support, 1)
    assert actual["eval_f1_macro"] == pytest.approx(f1.mean())


def test_metrics_table():
    scores = {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 12345}
    odd_labels = {"labels": {"no": {**scores, "support": 2}, "好": scores, "two\nlines": scores}}
    assert metrics.describe_report(odd_labels).split("\n") == [
        "label      precision  recall      f1  support",
        "no            1.0000  0.5000  0.6667        2",
        "好            1.0000  0.5000  0.6667    12345",
        "two lines     1.0000  0.5000  0.6667    12345",
    ]
    for count, last in ((20, "19 "), (21, "and 1 more label"), (150, "and 130 more labels")):
        table = metrics.describe_report({"labels": {str(n): scores for n in range(count)}})
        lines = table.split("\n")
        assert len(lines) == min(count, 20) + 1 + (count > 20)
        assert lines[-1].startswith(last)
    long = metrics.describe_report({"labels": {"x" * 500: scores}})
    assert max(map(len, long.split("\n"))) < 80


def test_libraries_are_imported_lazily():
    code = "import sys, bert_tf.tasks.classification.metrics; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "bert_tf.tasks.classification.metrics" in process.stdout.split(), process.stderr
    assert not {"sklearn", "scipy", "matplotlib"} & set(process.stdout.split())


@pytest.mark.parametrize(("predictions", "warns"), [([8.37, 8.38], True), ([1.0, 500.0], False)])
def test_constant_predictions_of_numbers_warn(run_log, predictions, warns):
    labels = np.array([10.0, 900.0])
    metrics.regression_metrics(np.array(predictions), labels, np.zeros(2))
    assert ("all predictions are from 8.37 to 8.38, but the labels" in run_log.text) == warns
