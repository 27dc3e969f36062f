"""Evaluation during training, best weights, early stopping, several runs and frozen layers."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bert_tf import checkpoint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from bert_tf.options import ClassifierOptions
from bert_tf.runs import output_dir
from bert_tf.tasks import classification
from bert_tf.training.curve import TrainingCurve
from bert_tf.training.evaluation import EvalCallback, Monitor
from tests.checkpoints.formats.conftest import assert_same, values_of
from tests.finetuning.helpers import rows_of
from tests.tasks.classification.test_task import options

# A high learning rate makes the metrics fluctuate.
TRAINING = {
    "do_train": True,
    "do_eval": True,
    "num_train_epochs": 6.0,
    "learning_rate": 2e-2,
    "save_checkpoints_steps": 1000,
}


def _read_json(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    run = options(tiny, folder, **TRAINING, do_predict=True, eval_every="5", best_metric="loss")
    return run, classification.run(run), folder / "out"


def test_evaluations_in_bfloat16_use_the_current_weights(tiny, tmp_path):
    """Inference in bfloat16 has a copy of the weights, which each evaluation must renew."""
    flags = {**TRAINING, "precision": "bfloat16", "eval_every": "5", "best_metric": "loss"}
    classification.run(options(tiny, tmp_path, **flags))
    history = _read_json(tmp_path / "out" / "evaluations.json")
    assert len({evaluation["eval_loss"] for evaluation in history["evaluations"]}) > 1
    again = options(tiny, tmp_path, do_eval=True, precision="bfloat16")
    metrics = classification.run(again).metrics
    assert metrics["eval_loss"] == pytest.approx(history["best"]["eval_loss"], abs=1e-6)


def test_best_weights_are_saved_and_used(trained, tiny, tmp_path):
    _, results, out = trained
    history = _read_json(out / "evaluations.json")
    # int(18 / 4 * 6) = 27 steps: every fifth step and the last.
    assert [evaluation["step"] for evaluation in history["evaluations"]] == [5, 10, 15, 20, 25, 27]
    best = min(history["evaluations"], key=lambda evaluation: evaluation["eval_loss"])
    assert history["metric"] == "loss"
    assert history["best"] == best
    assert results.metrics["global_step"] == best["step"]
    assert float(str(results.metrics["eval_loss"])) == pytest.approx(best["eval_loss"], abs=1e-6)
    # The best evaluation is not the last one.
    assert len({evaluation["eval_loss"] for evaluation in history["evaluations"]}) > 1
    assert best["step"] < 27
    # Evaluating the saved weights in a different folder gives the same metrics.
    flags = {"init_checkpoint": str(out / "best" / "model.ckpt"), "do_predict": True}
    flags |= {"output_dir": str(tmp_path / "rerun"), "do_eval": True}
    metrics = classification.run(options(tiny, tmp_path, **flags)).metrics
    assert metrics["eval_loss"] == pytest.approx(best["eval_loss"], abs=1e-6)
    assert metrics["eval_accuracy"] == pytest.approx(best["eval_accuracy"], abs=1e-6)
    for name in ("test_results.tsv", "test_predictions.tsv"):
        assert (tmp_path / "rerun" / name).read_text() == (out / name).read_text()
    assert checkpoint.step_of(str(out / "best" / "model.ckpt")) == best["step"]
    for folder in (out, out / "best"):
        assert find_source(str(folder)).path == str(out / "best" / "model.ckpt")


def test_predictor_loads_the_best_weights(trained):
    _, _, out = trained
    header, *rows = rows_of(out / "test_predictions.tsv")
    assert header == ["id", "text", "text_pair", "label", "probability_0", "probability_1"]
    for folder in (out, out / "best"):
        predictions = Predictor.from_output_dir(folder)([(row[1], row[2]) for row in rows])
        assert [prediction.label for prediction in predictions] == [row[3] for row in rows]
        for prediction, row in zip(predictions, rows, strict=True):
            expected = pytest.approx([float(value) for value in row[4:]], abs=1e-5)
            assert list(prediction.probabilities.values()) == expected


def test_repeated_command_skips_training(trained):
    run, results, out = trained
    before = (out / "evaluations.json").read_text()
    assert classification.run(run).metrics == results.metrics
    assert (out / "evaluations.json").read_text() == before


def test_evaluation_does_not_change_training(trained, tiny, tmp_path):
    _, _, out = trained
    classification.run(options(tiny, tmp_path, **TRAINING))
    assert_same(str(tmp_path / "out" / "model.ckpt-27"), str(out / "model.ckpt-27"))


def test_training_curve(trained):
    _, _, out = trained
    rows = rows_of(out / "training_curve.tsv")
    assert rows[0] == ["step", "loss", "learning_rate"]
    assert [int(row[0]) for row in rows[1:]] == list(range(1, 28))
    assert all(0 < float(row[1]) < 20 for row in rows[1:])
    assert (out / "training_curve.png").read_bytes().startswith(b"\x89PNG")


def test_early_stopping(tiny, tmp_path, run_log, monkeypatch):
    accuracies = iter([0.5, 0.7, 0.6, 0.7, 0.9])
    evaluated = []

    def evaluate(self, step):
        evaluated.append(step)
        self.compute_metrics = lambda: {"eval_accuracy": np.float32(next(accuracies))}
        return original(self, step)

    original = EvalCallback.evaluate
    monkeypatch.setattr(EvalCallback, "evaluate", evaluate)
    run = options(tiny, tmp_path, **TRAINING, eval_every="1epoch", early_stopping_patience=2)
    # An epoch has 4.5 steps.
    with monkeypatch.context() as patch:
        patch.setattr(
            "bert_tf.finetuning.run.FineTuningRun.evaluate_and_predict", lambda self: self.step
        )
        assert classification.run(run) == 8
    assert evaluated == [4, 8, 12, 16]
    assert "Early stopping: no improvement in 2 evaluations" in run_log.text
    assert checkpoint.names_in(str(tmp_path / "out"))[-1] == "model.ckpt-16"
    assert checkpoint.step_of(str(tmp_path / "out" / "best" / "model.ckpt")) == 8
    # The same command does not resume training.
    run_log.clear()
    results = classification.run(run)
    assert "Skipping training: it ended at step 16 by early stopping" in run_log.text
    assert results.metrics["global_step"] == 8
    assert evaluated == [4, 8, 12, 16]


def test_resumed_training_continues_evaluations(trained, tiny, tmp_path, monkeypatch):
    _, _, expected = trained
    every = {"eval_every": "5", "best_metric": "loss"}
    run = options(tiny, tmp_path, **TRAINING, **every)

    class Stopped(Exception):
        pass

    def stop_at_step_12(self, step, results):
        on_step(self, step, results)
        if step == 12:
            raise Stopped

    on_step = TrainingCurve.on_step
    with monkeypatch.context() as patch:
        patch.setattr(TrainingCurve, "on_step", stop_at_step_12)
        with pytest.raises(Stopped):
            classification.run(run)
    out = tmp_path / "out"
    assert len((out / "training_curve.tsv").read_text().splitlines()) == 13
    # Simulates a stop between the checkpoint of step 10 and its evaluation.
    history = _read_json(out / "evaluations.json")
    history["evaluations"] = history["evaluations"][:1]
    (out / "evaluations.json").write_text(json.dumps(history))
    classification.run(run)
    assert _read_json(out / "evaluations.json") == _read_json(expected / "evaluations.json")
    assert (out / "training_curve.tsv").read_text() == (expected / "training_curve.tsv").read_text()


def test_several_runs(tiny, tmp_path):
    short_training = {**TRAINING, "num_train_epochs": 2.0}
    out, runs = tmp_path / "out", {"num_runs": 3, "random_seed": 7}
    results = classification.run(options(tiny, tmp_path, **short_training, **runs))
    summary = _read_json(out / "runs.json")
    assert [run["random_seed"] for run in summary["runs"]] == [7, 8, 9]
    run_metrics = [_read_json(out / f"run_{n}" / "eval_results.json") for n in (1, 2, 3)]
    losses = [run["eval_loss"] for run in run_metrics]
    assert len(set(losses)) == 3
    assert summary["mean"]["eval_loss"] == pytest.approx(np.mean(losses))
    assert summary["deviation"]["eval_loss"] == pytest.approx(np.std(losses, ddof=1))
    accuracies = [run["eval_accuracy"] for run in run_metrics]
    assert summary["best"]["eval_accuracy"] == max(accuracies)
    assert results.metrics["eval_loss"] == summary["mean"]["eval_loss"]
    # Records are written once, and each run equals a single run with its seed.
    assert not list(out.glob("run_*/*.tf_record"))
    single_run = {"random_seed": 8, "output_dir": str(tmp_path / "single_run")}
    metrics = classification.run(options(tiny, tmp_path, **short_training, **single_run)).metrics
    assert float(str(metrics["eval_loss"])) == run_metrics[1]["eval_loss"]


def test_frozen_layers_do_not_change(tiny_of_two_layers, tmp_path):
    tiny = tiny_of_two_layers
    run = options(tiny, tmp_path, **TRAINING, freeze_layers=1, recompute_layers=True)
    classification.run(run)
    after = values_of(checkpoint.latest(str(tmp_path / "out")))
    before = values_of(tiny.checkpoint)
    assert before.keys() <= after.keys()
    unchanged = {name for name, value in before.items() if np.array_equal(after[name], value)}
    frozen = {n for n in before if n.startswith(("bert/embeddings", "bert/encoder/layer_0"))}
    # In the second layer, only the key bias is unchanged, as it has no gradient.
    assert unchanged >= frozen
    assert len(before.keys() - unchanged) >= 15
    assert not [name for name in after if name.startswith("bert/embeddings") and "adam" in name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_every": "often"}, "--eval_every must be a number of steps"),
        ({"eval_every": "1.5"}, "--eval_every must be a number of steps"),
        ({"best_metric": "f2", "eval_every": "5"}, "--best_metric must be one of accuracy, f1, "),
        ({"num_runs": 2, "do_eval": False}, "--num_runs needs --do_train=true and --do_eval=true"),
        ({"class_weights": "0:2,0:3"}, "label:weight, each once.*Received: 0:3"),
        ({"freeze_layers": 3}, "--freeze_layers=3 is too many for 1 layer"),
        ({"class_weights": "0:2,2:1"}, "--class_weights must be balanced.*Received: 2:1"),
        ({"class_weights": "0:-1"}, "label:weight, each once.*Received: 0:-1"),
    ],
)
def test_invalid_flags(tiny, tmp_path, changes, message):
    run = options(tiny, tmp_path, **{**TRAINING, **changes})
    with pytest.raises(UserError, match=message) as error:
        classification.run(run)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "train.tf_record").exists()


@pytest.mark.parametrize(
    ("eval_every", "steps"),
    [("200", 200), ("3 steps", 3), ("0.5 epochs", 2), ("0.01epoch", 1), (None, None)],
)
def test_eval_every_in_steps_and_epochs(eval_every, steps):
    assert ClassifierOptions(eval_every=eval_every).steps_between_evaluations(4.5) == steps


def test_monitor():
    monitors = [("f1", False), ("pearson", False), ("loss", True)]
    assert Monitor("auto", monitors).name == "f1"
    loss, f1 = Monitor("eval_loss", monitors), Monitor("f1", monitors)
    assert loss.name == "loss"
    assert f1.score({"f1": 0.5}) > f1.score({"f1": 0.4})
    assert loss.score({"eval_loss": 0.5}) < loss.score({"eval_loss": 0.4})
    assert Monitor("pearson", monitors).score({"eval_pearson": np.nan}) == -np.inf
    expected = r"metrics\(\) must return f1\. Received: eval_loss, loss"
    with pytest.raises(UserError, match=expected):
        f1.value({"eval_loss": 1.0, "loss": 1.0})


def test_later_runs_use_the_best_weights(trained, tiny, tmp_path, run_log):
    _, results, out = trained
    shutil.copytree(out, tmp_path / "out")
    later = options(tiny, tmp_path, do_eval=True, do_predict=True)
    metrics = classification.run(later).metrics
    assert metrics == results.metrics
    name = "test_predictions.tsv"
    assert (tmp_path / "out" / name).read_text() == (out / name).read_text()
    assert "not renewed" not in run_log.text
    # Training without evaluations resumes from the last checkpoint, which is then used.
    classification.run(options(tiny, tmp_path, **{**TRAINING, "num_train_epochs": 7.0}))
    metrics = classification.run(options(tiny, tmp_path, do_eval=True)).metrics
    assert metrics["global_step"] == 31
    names = "test_predictions.tsv, test_results.tsv"
    assert f"out: written before this training, and not renewed: {names}\n" in run_log.text


def test_old_results_of_all_tasks_are_reported(tmp_path, run_log):
    names = ["entities_test.jsonl", "label_test.txt", "null_odds.json", "predicted_test.conllu"]
    glue = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI"
    names += ["reranked.trec", *(f"{name}.tsv" for name in glue.split())]
    for name in (*names, "train.tsv", "labels.txt", "model.ckpt-1.index", "MRPC_copy.tsv"):
        (tmp_path / name).touch()
    output_dir.warn_about_old_results(str(tmp_path), [str(tmp_path / "RTE.tsv")])
    expected = ", ".join(sorted({*names} - {"RTE.tsv"}))
    assert f"not renewed: {expected}\n" in run_log.text


def test_missing_final_evaluation_is_run(trained, tiny, tmp_path):
    """Simulates a stop between the last checkpoint and its evaluation."""
    run, results, out = trained
    shutil.copytree(out, tmp_path / "out")
    path = tmp_path / "out" / "evaluations.json"
    history = _read_json(path)
    history["evaluations"] = history["evaluations"][:-1]
    path.write_text(json.dumps(history))
    rerun = dataclasses.replace(run, output_dir=str(tmp_path / "out"))
    assert classification.run(rerun).metrics == results.metrics
    assert _read_json(path) == _read_json(out / "evaluations.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"examples": "x"}, "of other examples"),
        ({"evaluations": 5}, "damaged"),
        (None, "without a checkpoint"),
    ],
)
def test_outdated_evaluations_are_ignored(trained, tiny, tmp_path, run_log, change, reason):
    run, _, out = trained
    shutil.copytree(out, tmp_path / "out")
    path = tmp_path / "out" / "evaluations.json"
    if change is None:
        shutil.rmtree(tmp_path / "out" / "best")
    path.write_text(json.dumps({**_read_json(path), **(change or {})}))
    rerun = dataclasses.replace(run, output_dir=str(tmp_path / "out"))
    if reason == "of other examples":
        # Skipped training keeps them and the best weights.
        before = path.read_text()
        classification.run(rerun)
        assert path.read_text() == before
        assert checkpoint.step_of(str(tmp_path / "out" / "best" / "model.ckpt")) < 27
    classification.run(dataclasses.replace(rerun, num_train_epochs=7.0))
    assert "evaluations.json: ignoring these evaluations: " in run_log.text
    assert reason in run_log.text
    assert [evaluation["step"] for evaluation in _read_json(path)["evaluations"]] == [30, 31]


@pytest.mark.slow
def test_several_runs_are_resumed(tiny, tmp_path):
    short_training = {**TRAINING, "num_train_epochs": 1.0, "num_runs": 2}
    with pytest.raises(UserError, match="--resume=must"):
        classification.run(options(tiny, tmp_path, **short_training, resume="must"))
    classification.run(options(tiny, tmp_path, **short_training))
    shutil.rmtree(tmp_path / "out" / "run_2")
    classification.run(options(tiny, tmp_path, **short_training, resume="must"))
    assert (tmp_path / "out" / "run_2" / "model.ckpt-4.index").exists()
