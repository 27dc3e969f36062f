"""Compatibility with run directories, Keras files and records of earlier releases."""

import csv
import json
import shutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints, scripts
from bert_tf.api.predictor import Predictor
from bert_tf.modeling import BertClassifier
from tests.oracle import golden

TASKS = ["run_classifier", "run_classifier_tsv", "run_squad", "run_ner", "run_pretraining"]
QUESTION_AND_CONTEXT = (
    "what was good",
    "the good film was not slow it was a fast story the bad plot",
)


@pytest.fixture
def old_runs(tmp_path, monkeypatch):
    """Copies the directories of earlier releases and makes the copy the working directory.

    The data and models that `run.json` names no longer exist.
    """
    folder = shutil.copytree(golden("run_directories"), tmp_path / "old")
    for path in folder.glob("*/run.json"):
        path.write_text(path.read_text().replace("/tmp/old", str(tmp_path / "gone")))
    monkeypatch.chdir(folder)
    return folder


def run_script(monkeypatch, script, *flags):
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *flags])
    getattr(scripts, script)()


def model_flags(name):
    flags = [
        "--max_seq_length=24",
        f"--output_dir={name}",
        f"--bert_config_file={name}/bert_config.json",
    ]
    return flags if name == "run_pretraining" else [*flags, f"--vocab_file={name}/vocab.txt"]


def script_of(name):
    return name.removesuffix("_tsv")


@pytest.mark.parametrize("name", TASKS)
def test_resumed_training_matches_the_old_release(old_runs, monkeypatch, name):
    expected = json.loads((old_runs / "resumed.json").read_text())[name]
    flags = ["--train_batch_size=4", "--learning_rate=1e-3", "--do_train", "--do_eval"]
    run_script(monkeypatch, script_of(name), *expected["flags"], *model_flags(name), *flags)
    actual = json.loads((old_runs / name / "eval_results.json").read_text())
    for metric, value in expected["metrics"].items():
        assert actual[metric] == pytest.approx(value, abs=1e-4), metric
    prefix = f"{name}/model.ckpt-{expected['last_step']}"
    norms = {
        key: np.linalg.norm(value)
        for key, value in checkpoint.read(prefix, checkpoint.shapes(prefix))
    }
    for variable, norm in expected["weight_norms"].items():
        assert norms[variable] == pytest.approx(norm, rel=1e-4, abs=1e-5), variable


def test_predictions_match_the_old_release(old_runs, monkeypatch):
    name = "run_classifier"
    expected = np.loadtxt(old_runs / name / "test_results.tsv", delimiter="\t")
    (old_runs / name / "test_results.tsv").unlink()
    flags = ["--task_name=MRPC", "--data_dir=data/mrpc", "--do_predict"]
    run_script(monkeypatch, name, *flags, *model_flags(name))
    actual = np.loadtxt(old_runs / name / "test_results.tsv", delimiter="\t")
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_predictor_outputs_match_the_old_release(old_runs):
    with open(old_runs / "run_classifier_tsv" / "test_predictions.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    predictions = Predictor.from_output_dir("run_classifier_tsv")([row["text"] for row in rows])
    for row, prediction in zip(rows, predictions, strict=True):
        for label, probability in prediction.probabilities.items():
            assert probability == pytest.approx(float(row[f"probability_{label}"]), abs=1e-5)
    assert Predictor.from_output_dir("run_squad")(QUESTION_AND_CONTEXT).text == "fast story"
    assert Predictor.from_output_dir("run_ner")("the good film").words == ["the", "good", "film"]
    candidates = Predictor.from_output_dir("run_pretraining", vocab_file="run_ner/vocab.txt")(
        "the [MASK] film"
    )
    assert len(candidates) == 1


@pytest.mark.slow
def test_old_model_can_be_exported(old_runs, monkeypatch):
    run_script(
        monkeypatch, "export_model", "--model_dir=run_classifier_tsv", "--export_dir=exported"
    )
    folder = next((old_runs / "exported").rglob("saved_model.pb")).parent
    assert "serving_default" in tf.saved_model.load(str(folder)).signatures


def test_keras_files_match_the_checkpoint_weights(old_runs):
    ((_, expected),) = checkpoint.read("run_classifier/model.ckpt-9", ["output_weights"])
    model = keras.saving.load_model("classifier.keras")
    assert isinstance(model, BertClassifier)
    variables = checkpoints.named_variables(model)
    np.testing.assert_array_equal(variables["output_weights"].numpy(), expected)
    loaded = BertClassifier(model.config, 2)
    loaded.load_weights("classifier.weights.h5")
    np.testing.assert_array_equal(
        checkpoints.named_variables(loaded)["output_weights"].numpy(), expected
    )
