"""Estimators train as the scripts do, and leave only what the user asks for."""

import copy
import json
import os
import pickle
import signal
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import tensorflow as tf
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bert_tf import (
    BertModel,
    Predictor,
    TextClassifier,
    TextRegressor,
    TokenClassifier,
    checkpoint,
    run,
)
from bert_tf.api.rows import Rows, check_labels
from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.base.progress import TrainingProgress
from bert_tf.options import ClassifierOptions, NerOptions
from tests.oracle import ROOT

TEXTS = ["good film", "bad film", "a good plot", "the bad\tstory", 'not "good"', "bad, bad"] * 4
LABELS = [text.count("good") for text in TEXTS]
WORDS = [text.split() for text in TEXTS]
TAGS = [["B-X" if word == "good" else "O" for word in words] for words in WORDS]


# The model in examples/ learns these texts in a second.
CHECKPOINT = str(ROOT / "examples" / "small_bert")
FLAGS = {"max_seq_length": 16, "train_batch_size": 4, "learning_rate": 1e-3}
FLAGS["num_train_epochs"] = 4.0


@pytest.fixture(scope="module")
def trained():
    validation = TEXTS[:6], LABELS[:6]
    classifier = TextClassifier.from_checkpoint(CHECKPOINT, **FLAGS)
    return classifier.fit(TEXTS, LABELS, validation=validation, eval_every="6")


@pytest.fixture(scope="module")
def tagger():
    return TokenClassifier(CHECKPOINT, **FLAGS).fit(WORDS, TAGS)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def weights_in(folder):
    prefix = checkpoint.resolve(str(folder))
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def assert_same_weights(folder, other):
    weights, others = weights_in(folder), weights_in(other)
    assert weights.keys() <= others.keys()
    assert {"output_weights", "bert/pooler/dense/kernel"} <= weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, others[name], name)


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_weights_equal_those_of_the_script(tmp_path):
    classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(pd.Series(TEXTS), np.array(LABELS))
    classifier.save(tmp_path / "saved")
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    script = {"task_name": "tsv", "text_column": "text", "label_column": "label", "dev_fraction": 0}
    script |= {"train_file": write_json_lines(tmp_path / "train.jsonl", rows), "do_train": True}
    script |= {"init_checkpoint": CHECKPOINT, "output_dir": str(tmp_path / "script"), **FLAGS}
    run(ClassifierOptions(**script))
    assert_same_weights(tmp_path / "saved", tmp_path / "script")
    predictor = Predictor(tmp_path / "script")
    probabilities = [[*x.probabilities.values()] for x in predictor(TEXTS)]
    np.testing.assert_array_equal(classifier.predict_proba(TEXTS), np.float32(probabilities))
    # The labels of a script's model are strings.
    loaded = TextClassifier.load(tmp_path / "script")
    assert loaded.score(TEXTS, [*map(str, LABELS)]) == 1
    for call in (loaded.fit, loaded.score):
        with pytest.raises(UserError, match="have the type str, such as '0', not int"):
            call(TEXTS, pd.Series(LABELS))


def test_token_classifier_equals_the_script(tmp_path):
    tagger = TokenClassifier(CHECKPOINT, **FLAGS)
    tagger.fit(WORDS, TAGS, validation=(WORDS, TAGS), output_dir=tmp_path / "kept")
    rows = [{"tokens": words, "ner_tags": t} for words, t in zip(WORDS, TAGS, strict=True)]
    path = write_json_lines(tmp_path / "train.jsonl", rows)
    script = {"train_file": path, "eval_file": path, "do_train": True, "do_eval": True}
    script |= {"init_checkpoint": CHECKPOINT, "output_dir": str(tmp_path / "script"), **FLAGS}
    metrics = run(NerOptions(**script)).metrics
    assert_same_weights(tmp_path / "kept", tmp_path / "script")
    assert tagger.score(WORDS, TAGS) == metrics["f1"] == tagger.evaluations["f1"][-1]
    assert tagger.predict(WORDS[:2]) == TAGS[:2]
    assert tagger.predict(["a good film."]) == [["O", "B-X", "O", "O"]]
    assert [*tagger.classes_] == ["O", "B-X"]
    assert tagger.score(np.array(WORDS[:1]), np.array(TAGS[:1])) == 1
    rows = Rows(str(tmp_path / "array.jsonl"))
    rows.write(np.array([WORDS[0]] * 2), np.array([TAGS[0]] * 2), tagger._to_row)
    row = {"tokens": WORDS[0], "ner_tags": TAGS[0]}
    assert [*map(json.loads, files.read_text(rows.path).split("\n"))] == [row] * 2
    assert os.path.exists(tmp_path / "kept" / "eval_results.json")
    with pytest.raises(UserError, match=r"output_dir=.*kept has a model\. .*load\("):
        tagger.fit(WORDS, TAGS, output_dir=tmp_path / "kept")
    with pytest.raises(UserError, match=r"^text 0: .* are not names of labels"):
        tagger.fit(WORDS[:1], [[0, 0]])


def test_labels_of_another_type(trained):
    with pytest.raises(UserError, match="have the type int, such as 0, not str"):
        trained.score(TEXTS, [*map(str, LABELS)])
    with pytest.raises(UserError, match="have the type str, such as '0', not int"):
        check_labels({"0": np.int64(0)}, ["0"])
    check_labels({"a": "a"}, ["a "])  # only the type counts


def test_scores_of_labels_that_the_model_does_not_have(trained, tagger, caplog):
    assert trained.score(TEXTS[:2], [1, 2]) == 0.5
    assert "not in the training data: 2" in caplog.text
    caplog.clear()
    other = [["S-Y" if tag == "B-X" else tag for tag in tags] for tags in TAGS]
    assert tagger.score(WORDS, other) == 0
    assert "not in the training data: Y" in caplog.text
    caplog.clear()
    tagger.score(WORDS, [["S-X" if tag == "B-X" else tag for tag in tags] for tags in TAGS])
    assert "not in the training" not in caplog.text  # another scheme of the same types
    with pytest.raises(UserError, match=r"^text 1: 2 words, but 1 label$"):
        tagger.score(WORDS[:2], [TAGS[0], ["O"]])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[1, 2\]"):
        tagger.score(WORDS[:2], TAGS[:1])


def test_series_in_different_orders(trained, caplog):
    texts, labels = pd.Series(TEXTS), pd.Series(LABELS)
    for other in (labels.sample(frac=1, random_state=0), labels.set_axis(range(1, 25)), LABELS):
        copied = clone(trained).set_params(num_train_epochs=0.2)
        copied.fit(texts, other)
        copied.score(texts, other)
    assert caplog.text.count("paired by position, but their indexes differ in order") == 2
    assert "train.jsonl" not in caplog.text


def test_history_names_its_keys(trained):
    with pytest.raises(KeyError, match=r"no 'val_loss'\. history has: step, .*; evaluations: step"):
        trained.history["val_loss"]
    assert trained.history.get("val_loss") is None
    for copied in (copy.deepcopy(trained.history), pickle.loads(pickle.dumps(trained.history))):
        assert [*copied] == [*trained.history]
        np.testing.assert_array_equal(copied["eval_loss"], trained.evaluations["loss"])
    # Without the evaluations, pandas takes it: all columns have the same length.
    assert [*pd.DataFrame(trained.history)] == ["step", "loss", "learning_rate"]
    assert {"step", "loss", "accuracy"} < {*pd.DataFrame(trained.evaluations)}


def test_history_and_predictions(trained):
    assert len(trained.history["loss"]) == len(trained.history["step"]) == 24
    assert [*trained.evaluations["step"]] == [6, 12, 18, 24]
    assert trained.evaluations["accuracy"][-1] == trained.score(TEXTS, LABELS) == 1.0
    assert trained.classes_.tolist() == [0, 1]
    assert trained.predict(iter(TEXTS[:3])).tolist() == LABELS[:3]
    probabilities = trained.predict_proba(pl.Series(TEXTS))
    assert probabilities.shape == (24, 2)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert trained.predict([]).tolist() == []
    with pytest.raises(UserError, match=r"Received: \['a', 'good', 'plot'\]"):
        trained.predict([["a", "good", "plot"]])
    assert trained.predict_proba([]).shape == (0, 2)


def test_saved_model(trained, tmp_path):
    trained.save(tmp_path / "saved")
    again = TextClassifier.load(tmp_path / "saved", predict_batch_size=3)
    assert again.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(again.predict_proba(TEXTS), trained.predict_proba(TEXTS), atol=1e-6)
    np.testing.assert_array_equal(again.evaluations["loss"], trained.evaluations["loss"])
    assert again.fit(TEXTS[:8], LABELS[:8]).classes_.tolist() == [0, 1]
    predictor = Predictor(tmp_path / "saved")
    assert predictor("good").label == predictor.explain("good", label=1, steps=1).label == "1"
    path = write_json_lines(tmp_path / "dev.jsonl", [{"text": "good", "label": 1}])
    options = {"task_name": "tsv", "text_column": "text", "label_column": "label"}
    options |= {"eval_file": path, "do_eval": True, "max_seq_length": 16}
    options["init_checkpoint"] = str(tmp_path / "saved")
    results = run(ClassifierOptions(**options, output_dir=str(tmp_path / "evaluation")))
    assert results.metrics["eval_accuracy"] == 1
    for estimator, message in (
        (TextRegressor, "is a model for classification, not a TextRegressor"),
        (TokenClassifier, "with run_classifier, not run_ner"),
    ):
        with pytest.raises(UserError, match=message):
            estimator.load(tmp_path / "saved")
    for method in ("predict", "save"):
        with pytest.raises(NotFittedError, match=r"trained model: TextClassifier\.load\("):
            getattr(TextClassifier(tmp_path / "saved"), method)(["good"])


def test_a_loaded_model_continues(trained, tmp_path):
    trained.save(tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "moved")
    again = TextClassifier.load(tmp_path / "moved")
    # The second class does not occur in the new texts.
    again.fit(["bad film"] * 8, [0] * 8, num_train_epochs=1)
    assert again.history["loss"][0] < 0.1 < trained.history["loss"][0]
    assert again.classes_.tolist() == [0, 1]
    assert again.predict(["good plot"]).tolist() == [1]
    with pytest.raises(UserError, match="text 1: label '7' is not one of 0, 1"):
        again.fit(["good", "bad"], [1, 7])
    from_start = TextClassifier.load(tmp_path / "moved", init_checkpoint=CHECKPOINT)
    from_start.fit(TEXTS, LABELS, num_train_epochs=1)
    assert from_start.history["loss"][0] == trained.history["loss"][0]


def test_a_loaded_tagger_continues(tagger, tmp_path):
    tagger.save(tmp_path / "saved")
    again = TokenClassifier.load(tmp_path / "saved", train_batch_size=8)
    # The second label does not occur in the new texts.
    again.fit([["bad", "film"]] * 8, [["O", "O"]] * 8, num_train_epochs=1)
    assert again.history["loss"][0] < 0.1 < tagger.history["loss"][0]
    assert again.classes_.tolist() == ["O", "B-X"]
    assert again.predict(WORDS[:2]) == TAGS[:2]
    for fit in (again.fit, clone(again).fit):
        with pytest.raises(UserError, match=r"^text 1: label B-Y is not one of O, B-X"):
            fit([["good"], ["bad"]], [["B-X"], ["B-Y"]])


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        (["good film"], [["B-X", "O"]], r"^text 0: expected words .* \['good', 'film'\]\. Rec"),
        ([["good", "film"]], ["B-X O"], r"^text 0: expected labels .* \['B-X', 'O'\]\. Received"),
        ([["good", "film"]], [["O"]], "^text 0: 2 words, but 1 label$"),
        ([["good", float("nan")]], [["O", "O"]], "^text 0: expected words. Received: nan$"),
    ],
)
def test_words_and_labels_that_are_no_lists_of_one_length(words, tags, message):
    with pytest.raises(UserError, match=message):
        TokenClassifier(CHECKPOINT).fit(words, tags)


def test_a_loaded_regressor_continues_in_its_unit(tmp_path, caplog):
    numbers = [100 + 20 * label for label in LABELS]
    TextRegressor(CHECKPOINT, **FLAGS).fit(TEXTS, numbers).save(tmp_path / "saved")
    again, rest = TextRegressor.load(tmp_path / "saved"), {"learning_rate": 1e-9}
    with pytest.raises(ValueError, match="could not convert string"):
        again.score(TEXTS, ["good"] * len(TEXTS))
    before = again.predict(TEXTS)
    for unit in (1, 0.01):  # numbers near 110, and near 1, which alone would not be standardized
        again.fit(TEXTS[:8], [unit * (number + 30) for number in numbers[:8]], **rest)
        np.testing.assert_allclose(again.predict(TEXTS), before, atol=0.01)
        assert ("have another unit" in caplog.text) == (unit == 0.01)


def test_folders_that_are_no_trained_models(trained, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"No such folder: .*missing"):
        TextClassifier.load(tmp_path / "missing")
    (tmp_path / "model.joblib").write_text("")
    with pytest.raises(UserError, match=r"No such folder: .*\(it is a file, not a folder\)"):
        TextClassifier.load(tmp_path / "model.joblib")
    with pytest.raises(
        UserError, match=r"no run\.json\. .*TextClassifier\.from_check.*Predictor\("
    ):
        TextClassifier.load(CHECKPOINT)
    monkeypatch.setenv("HOME", os.path.dirname(CHECKPOINT))
    home = f"~/{os.path.basename(CHECKPOINT)}"
    with pytest.raises(UserError, match="less than one step"):
        TextClassifier(home).fit(TEXTS[:2], LABELS[:2], num_train_epochs=1)
    assert len(BertModel.from_checkpoint(home).weights) > 30


def test_save_replaces_only_saved_models(trained, tmp_path):
    folder = tmp_path / "saved"
    others = ["saved.old.tmp", "saved.tmp"]
    for name in others:
        (tmp_path / name / "user").mkdir(parents=True)
    trained.save(folder, overwrite=True)
    (folder / "labels.txt").write_text("old")
    with pytest.raises(UserError, match=r"saved: the folder exists: pass overwrite=True"):
        trained.save(folder)
    trained.save(folder, overwrite=True)
    assert (folder / "labels.txt").read_text() == "0\n1\n"
    (folder / "notes.md").touch()
    (tmp_path / "empty").mkdir()
    for other in (folder, tmp_path / "empty", tmp_path):
        with pytest.raises(UserError, match="exists, and is not only a saved model"):
            trained.save(other, overwrite=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["empty", "saved", *others]
    assert all((tmp_path / name / "user").exists() for name in others)
    assert (folder / "notes.md").exists()


def test_a_failed_save_leaves_the_earlier_model(trained, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    trained.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(trained, "_files", {**trained._files, "vocab.txt/x": b""})
    with pytest.raises(UserError):
        trained.save(folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_flags_may_be_mappings_lists_and_numbers(trained):
    flags = {"class_weights": {0: 1, 1: np.float64(3)}, "labels": [0, 1, 2], "eval_every": 6}
    flags |= FLAGS | {"num_train_epochs": 1}
    classifier = TextClassifier(CHECKPOINT, **flags)
    assert all(classifier.get_params()[name] is flags[name] for name in flags)
    classifier.fit(TEXTS, np.array(LABELS), validation=(TEXTS, LABELS))
    assert [*classifier.evaluations["step"]] == [6]
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.classes_.dtype == int
    flags |= {"class_weights": "0:1,1:3.0", "labels": "0,1,2", "eval_every": "6"}
    same = TextClassifier(CHECKPOINT, **flags).fit(TEXTS, LABELS, validation=(TEXTS, LABELS))
    np.testing.assert_array_equal(same.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


def test_nothing_is_left_on_the_disk(trained, temporary):
    classifier = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(classifier.predict(TEXTS), trained.predict(TEXTS))
    classifier.fit(TEXTS, LABELS)
    assert classifier.predict(["good"]).tolist() == [1]
    assert [*temporary.iterdir()] == []


def test_an_error_leaves_the_earlier_model(trained):
    classifier = pickle.loads(pickle.dumps(trained))
    before = classifier.predict_proba(TEXTS)
    with pytest.raises(UserError, match="less than one step"):
        classifier.fit(TEXTS, ["x", "y"] * 12, num_train_epochs=0.01)
    np.testing.assert_array_equal(classifier.predict_proba(TEXTS), before)
    assert classifier.classes_.tolist() == [0, 1]
    # Flags of a single call do not stay.
    assert classifier.num_train_epochs == 4.0
    classifier.fit(TEXTS, ["x", "y"] * 12, num_train_epochs=1)
    assert classifier.classes_.tolist() == ["x", "y"]
    assert len(classifier.history["loss"]) == 6


@pytest.mark.parametrize("step", [1, 3])
def test_interrupted_training_leaves_a_usable_model(monkeypatch, temporary, step, caplog):
    update = TrainingProgress.update

    def interrupt(self, number, metrics):
        update(self, number, metrics)
        if number == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingProgress, "update", interrupt)
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(TEXTS, LABELS)
    assert step <= len(classifier.history["loss"]) < 24
    assert "The estimator has the weights trained so far" in caplog.text
    assert "run the same command again" not in caplog.text
    assert {*classifier.predict(TEXTS)} <= {0, 1}
    assert [*temporary.iterdir()] == []


def test_training_in_a_thread():
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    thread = threading.Thread(target=classifier.fit, args=(TEXTS, LABELS))
    thread.start()
    thread.join()
    assert classifier.score(TEXTS, LABELS) == 1


def test_several_labels_for_each_text():
    labels = [["good"] * ("good" in text) + ["film"] * ("film" in text) for text in TEXTS]
    classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, labels, num_train_epochs=12)
    assert classifier.classes_.tolist() == ["film", "good"]
    assert [sorted(x) for x in classifier.predict(TEXTS)] == [sorted(x) for x in labels]
    assert classifier.score(TEXTS, labels) == 1
    table = pd.DataFrame({name: [int(name in x) for x in labels] for name in ("good", "film")})
    same = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, table, num_train_epochs=12)
    assert same.classes_.tolist() == ["good", "film"]
    assert same.score(TEXTS, table) == same.score(TEXTS, labels) == 1
    assert same.score(TEXTS, table.to_numpy()) == 1
    for again in (same, pickle.loads(pickle.dumps(same))):
        predicted = again.predict(TEXTS)
        assert predicted.dtype == int
        np.testing.assert_array_equal(predicted, table)
    assert same.predict([]).shape == (0, 2)
    matrix = scipy.sparse.csr_matrix(table.to_numpy())
    assert same.score(TEXTS, matrix) == 1
    sparse = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, matrix, validation=(TEXTS, matrix))
    dense = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, table.to_numpy())
    np.testing.assert_array_equal(sparse.predict_proba(TEXTS), dense.predict_proba(TEXTS))
    numbers = [[n for n, x in enumerate(row) if x] for row in table.to_numpy()]
    numbered = copy.deepcopy(same)
    numbered.classes_ = np.array([0, 1])  # as after `fit(TEXTS, numbers)`
    assert numbered.score(TEXTS, numbers) == numbered.score(TEXTS, table.to_numpy()) == 1
    with pytest.raises(UserError, match="of this model have the type int, such as 0, not str"):
        numbered.score(TEXTS, [list(map(str, row)) for row in numbers])
    with pytest.raises(UserError, match="The labels have 3 columns, but the model has 2"):
        same.score(TEXTS, np.zeros((24, 3)))
    with pytest.raises(UserError, match="text 1: label good must be 0 or 1"):
        same.fit(TEXTS, table.replace(0, 2))


def test_one_label_or_none_for_each_text(caplog):
    labels = [["good"] * ("good" in text) for text in TEXTS]
    classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, labels, num_train_epochs=12)
    assert classifier.predict(TEXTS).tolist() == labels
    assert "no row has two labels" in caplog.text


def test_regression_of_pairs():
    pairs = pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    regressor = TextRegressor(CHECKPOINT, **FLAGS).fit(pairs, np.array(LABELS) * 50.0)
    assert regressor.predict(pairs).shape == (24,)
    assert regressor.predict([("good film", "a plot")]).dtype == np.float32
    assert regressor.score(pairs, np.array(LABELS) * 50.0) > 0.5
    targets = pd.DataFrame({"x": LABELS, "y": [0.5, 1] * 12})
    regressor.fit(pairs.to_numpy(), targets, num_train_epochs=1)
    assert regressor.predict(pairs).shape == (24, 2)
    matrix = scipy.sparse.csr_array(targets)
    assert regressor.score(pairs, matrix) == regressor.score(pairs, targets.to_numpy())
    same = TextRegressor(CHECKPOINT, **FLAGS).fit(pairs, matrix, num_train_epochs=1)
    np.testing.assert_allclose(same.predict(pairs), regressor.predict(pairs), atol=1e-5)
    with pytest.raises(UserError, match="text 2: a text, unlike the others"):
        regressor.fit([("a", "b"), ("b", "c"), "a"], [0.5, 1, 2])


def test_unicode():
    texts = ["日本語 😀", "Füße \u2028 x\0y\r\nz"] * 12
    classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(texts, ["é", "Ω👍"] * 12)
    assert [*classifier.classes_] == ["é", "Ω👍"]
    assert classifier.predict(texts).shape == (24,)


@pytest.mark.parametrize(
    ("texts", "labels", "flags", "message"),
    [
        ("good", [1], {}, "expected texts as a list.* Received: str"),
        (scipy.sparse.eye(2), [0, 1], {}, "expected texts as a list.* Received: "),
        (("a", "b"), [0], {}, r"Is this a pair, or two texts\? Pass a list: \[\(a, b\)\]"),
        (pd.DataFrame(dict.fromkeys("abc", TEXTS)), LABELS, {}, "The table has 3 columns"),
        (TEXTS, None, {}, "expected labels as a list.* Received: NoneType"),
        (TEXTS, LABELS[1:], {}, "Texts and labels differ in number: one has only 23"),
        ([], [], {}, "There are no texts"),
        (["a", float("nan")], [0, 1], {}, "text 1: the text must be a .* Received: 'NaN'"),
        ([("a", "b"), ("b", None)], [0, 1], {}, "text 1: the text_pair must be .*: 'null'"),
        (["a", "b"], [0, None], {}, "text 1: the label must be a string or .*: 'null'"),
        (["a", ("b", "c", "d")], [0, 1], {}, r"text 1: expected a string, or a pair .*: \('b'"),
        ([{"text": "a"}], [0], {}, r"text 0: expected a string, or a pair .*: \{'text': 'a'"),
        ((TEXTS, TEXTS), LABELS, {}, r"text 0: expected a string, or a pair"),
        (["a", ("b", "c")], [0, 1], {}, "text 1: a pair, unlike the others"),
        (["a", "b"], [0, object()], {}, "text 1: a value of type object: .* Convert it to a"),
        ([b"a", b"b"], [0, 1], {}, "text 0: a value of type bytes: b'a'"),
        (tf.constant(["a", "b"]), [0, 1], {}, "text 0: a value of type EagerTensor"),
        (["a", "b"], ["x", " "], {}, "text 1: the label is empty"),
        (["a", "b"], [0, 0.5], {}, "text 1: the label is 0.5. For numbers, use TextRegressor"),
        (["a", "b"], np.array([[0.3, 0.7], [1, 0]]), {}, "text 0: label 0 must be 0 or 1. Rec"),
        (["a", "b"], [0, "0"], {}, "The labels 0 and '0' have the same name"),
        (["a", "b"], [1, 1], {}, r"All labels are of one class, \['1'\]: nothing to learn"),
        (TEXTS, LABELS, {"validation": 0.2}, r"expected validation=\(texts, labels\)\. Received"),
        (TEXTS, LABELS, {"eval_every": "1"}, "eval_every needs fit.*validation="),
        (TEXTS, LABELS, {"do_export": True}, "do_export needs output_dir"),
        (TEXTS, LABELS, {"dev_fraction": 0.2}, "determines dev_fraction.*fit.texts, labels, valid"),
        (
            TEXTS,
            LABELS,
            {"init_checkpoint": TextClassifier()},
            "cannot be a TextClassifier: save it",
        ),
        (TEXTS, LABELS, {"sample_weight": [1]}, "Invalid parameter 'sample_weight' for TextC"),
        (TEXTS, LABELS, {"class_weights": {"a,b": 2}}, "--class_weights: 'a,b' has a comma"),
        (TEXTS, LABELS, {"max_seq_length": 999}, "max_seq_length=999 exceeds the model's 512"),
        (TEXTS, LABELS, {"validation": (["a"], [7])}, "^validation text 0: label '7' is not one"),
    ],
)
def test_mistakes_are_reported_by_their_place(temporary, texts, labels, flags, message):
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    with pytest.raises(UserError, match=message) as error:
        classifier.fit(texts, labels, **flags)
    assert str(temporary) not in str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None
    assert [*temporary.iterdir()] == []


def test_log_names_texts_instead_of_files(caplog, temporary):
    caplog.set_level("WARNING", "bert_tf")
    classifier = TextClassifier(CHECKPOINT, **FLAGS)
    classifier.fit([*TEXTS, ""], [*LABELS, 1], num_train_epochs=0.2)
    assert "text 24: 1 row with an empty text" in caplog.text
    assert str(temporary) not in caplog.text


def _predict_in_another_process(classifier):
    return classifier.predict(TEXTS).tolist()


@pytest.mark.slow
def test_process_pool(trained):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_predict_in_another_process, trained).result() == LABELS


@pytest.mark.slow
def test_a_hundred_thousand_texts():
    """Memory stays below what the texts, their rows and the model need: 300 MB."""
    import resource

    classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(TEXTS, LABELS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    texts = (TEXTS[index % 24] for index in range(100_000))
    labels = (LABELS[index % 24] for index in range(100_000))
    classifier.fit(texts, labels, num_train_epochs=0.001)
    predictions = classifier.predict(TEXTS[index % 24] for index in range(100_000))
    assert len(predictions) == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
