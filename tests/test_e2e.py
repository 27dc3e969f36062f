"""Reruns the original's commands in goldens/e2e, and compares numbers and written files."""

import gzip
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from tests.oracle import ROOT, golden
from tests.processes import run_python

pytestmark = pytest.mark.slow

SCRIPTS = ("run_classifier.py", "run_pretraining.py", "run_squad.py", "extract_features.py")
# Files of TensorFlow 1 only; see docs/differences.md.
TF1_FILES = re.compile(r"\.meta$|^graph\.pbtxt$")
# TensorFlow versions differ by up to 2e-5.
TOLERANCE = 2e-5
# Files that the original does not write.
NEW_FILES = {"eval_results.json", "bert_config.json", "vocab.txt", "run.json", "records.json"}
NEW_FILES |= {"train_texts.npy"}
NEW_FILES |= {"test_predictions.tsv", "confusion_matrix.png", "labels.txt"}
NEW_FILES |= {"training_curve.tsv", "training_curve.png", "report.html", "eval_predictions.tsv"}


def _load_runs():
    rows = json.loads(golden("e2e/runs.json").read_text())
    return {row["name"]: row for row in rows if row["script"] in SCRIPTS}


def _run(row, flag):
    result = run_python(ROOT / row["script"], *row["argv"], flag, cwd=golden("e2e"))
    assert result.returncode == row["exit_code"], result.stderr
    return result


def _rerun(row, out):
    result = _run(row, f"--output_dir={out}")
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    pattern = re.compile(r"events\.out\.tfevents\..*")
    written = {pattern.sub("events.out.tfevents.<time>.<host>", name) for name in written}
    assert written - NEW_FILES == {
        name for name in row["output_files"] if not TF1_FILES.search(name)
    }
    return result


def _read_metrics(path):
    return {key: float(value) for key, value in _read_pairs(path)}


def _read_pairs(path):
    return [line.split(" = ") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["classifier_eval_predict", "classifier_eval_predict_bs"])
def test_classifier_outputs_match_the_original(name, tmp_path):
    _rerun(_load_runs()[name], tmp_path)
    folder = golden(f"e2e/{name}")
    expected = _read_metrics(folder / "eval_results.txt")
    actual = _read_metrics(tmp_path / "eval_results.txt")
    # The original's metrics come first.
    assert list(actual)[: len(expected)] == list(expected)
    shared = {name: actual[name] for name in expected}
    assert shared == pytest.approx(expected, abs=TOLERANCE)
    rows = [
        [[float(value) for value in line.split("\t")] for line in path.read_text().splitlines()]
        for path in (tmp_path / "test_results.tsv", folder / "test_results.tsv")
    ]
    assert len(rows[0]) == len(rows[1]) == 12
    for ours, theirs in zip(*rows, strict=True):
        assert ours == pytest.approx(theirs, abs=TOLERANCE)


def test_training_matches_the_original(tmp_path):
    row = _load_runs()["classifier_train"]
    _rerun(row, tmp_path)
    assert (tmp_path / "checkpoint").read_text() == golden(
        "e2e/classifier_train/checkpoint"
    ).read_text()
    names = json.loads(golden("checkpoint_variables.json").read_text())
    rows = names["classifier_train/model.ckpt-0"]
    expected = {name: shape for name, shape, _ in rows}
    dtypes = {name: dtype for name, _, dtype in rows}
    for step in (0, 4, 8, 10):
        prefix = str(tmp_path / f"model.ckpt-{step}")
        assert checkpoint.shapes(prefix) == expected
        assert checkpoint.step_of(prefix) == step
        reader = tf.train.load_checkpoint(prefix)
        stored_dtypes = reader.get_variable_to_dtype_map()
        assert {name: dtype.name for name, dtype in stored_dtypes.items()} == dtypes
    assert _read_metrics(tmp_path / "eval_results.txt")["global_step"] == row["num_steps_logged"]


# ---- run_pretraining -----------------------------------------------------------------------


def test_pretraining_evaluation_matches_the_original(tmp_path):
    _rerun(_load_runs()["pretraining_eval"], tmp_path)
    expected = _read_metrics(golden("e2e/pretraining_eval/eval_results.txt"))
    actual = _read_metrics(tmp_path / "eval_results.txt")
    assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, abs=TOLERANCE)


def test_pretraining_and_resume_match_the_original(tmp_path):
    """Repeats one record without dropout, which makes the original's steps deterministic."""
    folder = golden("e2e/pretraining_train_one/checkpoint").parent
    _rerun(_load_runs()["pretraining_train_one"], tmp_path)
    expected = _read_metrics(folder / "eval_results.txt")
    _assert_weight_norms(folder, tmp_path, (0, 3, 6))
    result = _rerun(_load_runs()["pretraining_train_continue"], tmp_path)
    assert "Resuming from" in result.stderr
    _assert_weight_norms(folder, tmp_path, (8,))
    actual = _read_metrics(tmp_path / "eval_results.txt")
    assert list(actual) == list(expected)
    assert actual["global_step"] == 8


# ---- run_squad -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squad_predict_v1", "squad_predict_v2"])
def test_squad_predictions_match_the_original(name, tmp_path):
    _rerun(_load_runs()[name], tmp_path)
    folder = golden(f"e2e/{name}")
    expected = (folder / "predictions.json").read_text()
    assert (tmp_path / "predictions.json").read_text() == expected
    with gzip.open(folder / "nbest_predictions.json.gz", "rt") as file:
        expected = json.load(file)
    actual = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert list(actual) == list(expected)
    for key, entries in expected.items():
        assert [entry["text"] for entry in actual[key]] == [entry["text"] for entry in entries]
        for ours, theirs in zip(actual[key], entries, strict=True):
            assert ours == {**theirs, **_approximate(theirs)}
    if name.endswith("v2"):
        actual, expected = (
            json.loads((path / "null_odds.json").read_text()) for path in (tmp_path, folder)
        )
        assert list(actual) == list(expected)
        assert actual == pytest.approx(expected, abs=TOLERANCE)


def _approximate(entry):
    return {
        key: pytest.approx(value, abs=TOLERANCE) for key, value in entry.items() if key != "text"
    }


def test_squad_training_matches_the_original(tmp_path):
    """Repeats one question without dropout."""
    folder = golden("e2e/squad_train_one/checkpoint").parent
    _rerun(_load_runs()["squad_train_one"], tmp_path)
    _assert_weight_norms(folder, tmp_path, (0, 5))
    names = json.loads(golden("checkpoint_variables.json").read_text())
    for step in (0, 5):
        rows = names[f"squad_train_one/model.ckpt-{step}"]
        actual = checkpoint.shapes(str(tmp_path / f"model.ckpt-{step}"))
        assert actual == {name: shape for name, shape, _ in rows}


def _assert_weight_norms(folder, out, steps):
    for step in steps:
        expected = np.load(folder / f"model.ckpt-{step}.values.npz")
        prefix = str(out / f"model.ckpt-{step}")
        ours = dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))
        norms = dict(zip(expected["l2_names"].tolist(), expected["l2"], strict=True))
        assert set(norms) <= set(ours)
        for name, norm in norms.items():
            # The original clips by a different norm, which scales moments (docs/differences.md).
            rel = 0.03 if name.endswith(("adam_m", "adam_v")) else 1e-4
            actual = np.linalg.norm(ours[name].astype(np.float64))
            assert actual == pytest.approx(norm, rel=rel, abs=1e-6), (step, name)


@pytest.mark.parametrize("name", ["extract_features", "extract_features_layers"])
def test_extracted_features_match_the_original(name, tmp_path):
    output = tmp_path / "output.jsonl"
    _run(_load_runs()[name], f"--output_file={output}")
    theirs = gzip.decompress(golden(f"e2e/{name}/output.jsonl.gz").read_bytes()).decode()
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    for line, expected in zip(output.read_text().splitlines(), theirs.splitlines(), strict=True):
        # The lines differ only in numbers.
        assert number.sub("#", line) == number.sub("#", expected)
        ours = np.array(number.findall(line), float)
        np.testing.assert_allclose(ours, np.array(number.findall(expected), float), atol=TOLERANCE)
