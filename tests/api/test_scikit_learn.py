"""Estimators work in scikit-learn's tools."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from bert_tf import SentenceEncoder, TextClassifier, TextRegressor, TokenClassifier
from bert_tf.api.rows import Rows, to_array
from bert_tf.base.errors import UserError
from bert_tf.options import ClassifierOptions
from tests.api.test_training import CHECKPOINT, FLAGS, LABELS, TAGS, TEXTS, WORDS
from tests.processes import run_python

ESTIMATORS = (TextClassifier, TextRegressor, TokenClassifier)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_are_the_flags(estimator):
    original = estimator("folder", max_seq_length=64, num_train_epochs=2)
    assert original.get_params()["learning_rate"] == original.learning_rate == 5e-5
    copied = clone(original)
    assert copied is not original
    assert copied.get_params() == original.get_params()
    assert copied.set_params(learning_rate=1e-4).learning_rate == 1e-4
    assert next(iter(inspect.signature(estimator).parameters)) == "init_checkpoint"
    assert repr(original).startswith(f"{estimator.__name__}(init_checkpoint='folder', max_seq_len")
    with pytest.raises(ValueError, match=r"Invalid parameter 'num_epochs' .* num_train_epochs"):
        estimator("folder", num_epochs=3)
    assert (is_classifier(original), is_regressor(original)) == (
        estimator is TextClassifier,
        estimator is TextRegressor,
    )


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("random_state", "Did you mean random_seed?"),
        ("batch_size", "Did you mean train_batch_size or predict_batch_size or"),
        ("eval_set", "Use score(texts, labels), or fit(..., validation=(texts, labels))"),
        ("device", "Use distribution_strategy and precision, or set CUDA_VISIBLE_DEVICES"),
    ],
)
def test_unknown_parameters_suggest_another(name, suggestion):
    message = f"Invalid parameter {name!r} for TextClassifier. {suggestion}"
    for call in (TextClassifier, TextClassifier().set_params, TextClassifier().fit):
        with pytest.raises(UserError, match=re.escape(message)):
            call(*[["a"], [1]] * (call.__name__ == "fit"), **{name: 1})


def test_all_flags_are_parameters():
    names = ClassifierOptions.__dataclass_fields__.keys()
    assert TextClassifier().get_params().keys() == names == TextRegressor().get_params().keys()
    options = ClassifierOptions()
    changed = {n for n, value in TextClassifier().get_params().items() if value != vars(options)[n]}
    assert changed == {"resume", "dev_fraction"}


@pytest.mark.parametrize(
    "check",
    [
        "check_estimator_cloneable",
        "check_estimator_tags_renamed",
        "check_valid_tag_types",
        "check_estimator_repr",
        "check_no_attributes_set_in_init",
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_mixin_order",
        "check_get_params_invariance",
        "check_set_params",
    ],
)
@pytest.mark.parametrize("estimator", [*ESTIMATORS, SentenceEncoder])
def test_checks_of_scikit_learn(estimator, check):
    getattr(estimator_checks, check)(estimator.__name__, estimator("folder"))


def test_use_before_training_raises():
    for call in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(TextClassifier("folder"), call)(["a"])
    for estimator in ESTIMATORS:
        with pytest.raises(NotFittedError):
            estimator("folder").score(["a"], ["b"])
    with pytest.raises(NotFittedError):
        TextClassifier("folder").save("x")
    assert not hasattr(TextClassifier("folder"), "classes_")


@pytest.mark.slow
def test_cross_validation():
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    for texts in (TEXTS, np.array(TEXTS), pd.Series(TEXTS), pd.DataFrame({"a": TEXTS, "b": TEXTS})):
        scores = cross_val_score(classifier, texts, LABELS, cv=2, scoring="roc_auc")
        assert scores.tolist() == [1, 1]
    assert cross_val_score(TokenClassifier(CHECKPOINT, **FLAGS), WORDS, TAGS, cv=2).min() > 0
    regressor = TextRegressor(CHECKPOINT, **FLAGS)
    assert len(cross_val_score(regressor, TEXTS, [0.5 * x for x in LABELS], cv=2)) == 2


def test_cross_validation_of_a_table_of_labels():
    labels = np.array([["good" in text, "film" in text] for text in TEXTS], int)
    classifier = TextClassifier(CHECKPOINT, **FLAGS | {"num_train_epochs": 8})
    scores = cross_val_score(classifier, TEXTS, labels, cv=2, scoring="f1_micro")
    assert scores.min() > 0.9


@pytest.mark.slow
def test_grid_search():
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    grid = {"learning_rate": [1e-3, 1e-8], "max_seq_length": [8]}
    search = GridSearchCV(classifier, grid, cv=3).fit(pd.Series(TEXTS), pd.Series(LABELS))
    assert search.best_params_ == {"learning_rate": 1e-3, "max_seq_length": 8}
    assert search.predict(TEXTS).tolist() == LABELS


@pytest.mark.slow
def test_pipeline():
    shout = FunctionTransformer(lambda texts: [f"{text} film" for text in texts])
    pipeline = make_pipeline(shout, TextClassifier(CHECKPOINT, **FLAGS))
    pipeline.fit(TEXTS, LABELS, textclassifier__num_train_epochs=4.0)
    assert pipeline.score(TEXTS, LABELS) == 1
    assert pipeline.predict_proba(TEXTS).shape == (24, 2)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([1, 0], np.int8), np.array([1, 0], np.int8)),
        ([True, False], np.array([True, False])),
        (np.array([True, False]), np.array([True, False])),
        (["b", "a"], np.array(["b", "a"])),
        (pd.Series(["b", "a"]).astype("category"), np.array(["b", "a"])),
        ([2.0, 1.0], np.array([2.0, 1.0])),
        ([1, "a"], np.array([1, "a"], object)),
    ],
)
def test_labels_keep_their_type(labels, expected):
    rows = Rows("")
    names = [rows.class_name(label) for label in labels]
    assert all(isinstance(name, str) for name in names)
    actual = to_array([rows.names[name] for name in names])
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == expected.dtype


def test_names_of_labels_are_those_of_the_script():
    rows = Rows("")
    labels = [True, 1, 2.0, "a ", np.str_("b"), np.int64(7)]
    assert [rows.class_name(label) for label in labels] == ["true", "1", "2", "a", "b", "7"]
    with pytest.raises(UserError, match="'a ' and 'a' have the same name"):
        rows.class_name("a")


def test_importing_the_package_does_not_import_scikit_learn():
    code = "import sys, bert_tf; from bert_tf import Predictor, run; "
    code += "print({'sklearn', 'pandas', 'tensorflow'} & {*sys.modules})"
    result = run_python("-c", code)
    assert result.stdout.strip() == "set()", result.stderr
