"""What is said when a model is opened whose training has not ended, or not begun."""

import json
import os
import shutil
import signal

import pytest

from bert_tf import BertClassifier, Predictor, TextClassifier
from bert_tf.base.errors import UserError
from bert_tf.base.signals import Terminated
from bert_tf.checkpoints.folder import remove
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands import convert_checkpoint, export_model
from bert_tf.options import (
    ClassifierOptions,
    ConversionOptions,
    ExportOptions,
    ExtractionOptions,
    SearchOptions,
    registry,
)
from bert_tf.serving.models import Model
from bert_tf.serving.options import ServingOptions

UNTRAINED = "was written before the first training step"


def options(tiny, folder, **flags):
    data = {"task_name": "CoLA", "data_dir": str(tiny.folder / "cola"), "do_train": True}
    defaults = {"num_train_epochs": 1.0, "init_checkpoint": tiny.checkpoint, "report": False}
    flags = {**tiny.flags, **data, **defaults, "output_dir": str(folder), **flags}
    return ClassifierOptions(**flags)


def edit(folder, **entries):
    """Changes `run.json`; None removes an entry."""
    run = json.loads((folder / "run.json").read_text()) | entries
    text = json.dumps({name: value for name, value in run.items() if value is not None})
    (folder / "run.json").write_text(text)


def said(log):
    """Returns what the log says about the end of training, and forgets the log."""
    messages = [record.getMessage() for record in log.records]
    log.clear()
    return [x for x in messages if "has not ended" in x or UNTRAINED in x]


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "o"
    registry.run(options(tiny, folder))
    return folder


@pytest.fixture(params=["killed", "finished", "of 1.1", "only step 0"])
def case(request, finished, tmp_path, monkeypatch):
    """A run in the folder "o", and what is said when it is opened."""
    return make_case(request.param, finished, tmp_path, monkeypatch)


def make_case(name, finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "o")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the good film\n")
    folder = tmp_path / "o"
    assert json.loads((folder / "run.json").read_text())["ended"] is True
    if name == "of 1.1":
        edit(folder, planned_steps=None, ended=None)
    if name == "killed":
        edit(folder, planned_steps=1000, ended=False)
        return ["o/model.ckpt-4: step 4 of 1,000, the run has not ended"]
    if name == "only step 0":
        edit(folder, planned_steps=1000, ended=False)
        (folder / "checkpoint").unlink()
        remove(str(folder), "model.ckpt-4")
        return [f"o/model.ckpt-0 {UNTRAINED}. Pass a later checkpoint"]
    return []


def load_estimator():
    classifier = TextClassifier.load("o")
    classifier.predict(["the good film"])
    return classifier


def load_exported():
    Predictor("o", engine="onnx")


FLAGS = {"init_checkpoint": "o", "max_seq_length": 24}
WAYS = {
    "Predictor": lambda: Predictor("o"),
    "TextClassifier.load": load_estimator,
    "BertClassifier.from_checkpoint": lambda: BertClassifier.from_checkpoint("o", num_labels=2),
    "server": lambda: Model("m", "o", ServingOptions(model_dir="o")).load(),
    "convert": lambda: convert_checkpoint.run(
        ConversionOptions(input="o", output="hf", to="hugging_face")
    ),
    "export": lambda: export_model.run(ExportOptions(model_dir="o", export_dir="e", format="onnx")),
    "extract_features": lambda: registry.run(
        ExtractionOptions(**FLAGS, input_file="texts.txt", output_file="v.jsonl", layers="-1")
    ),
    "search": lambda: registry.run(
        SearchOptions(**FLAGS, input_file="texts.txt", index_dir="index")
    ),
    "onnx, exported on first use": load_exported,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_open_a_model_says_it_once(finished, tmp_path, monkeypatch, way, run_log):
    name = "only step 0" if way in ("convert", "server", "export") else "killed"
    case = make_case(name, finished, tmp_path, monkeypatch)
    WAYS[way]()
    assert said(run_log) == case
    assert "/bert_tf_" not in run_log.text  # where estimators keep copies


def test_later_uses_and_evaluations_say_it_too(case, tiny, run_log, tmp_path):
    load_exported()
    assert said(run_log) == case
    load_exported()  # which reads no checkpoint
    assert said(run_log) == case
    registry.run(options(tiny, "o", do_train=False, do_eval=True))
    assert said(run_log) == case
    saved = tmp_path / "saved"
    load_estimator().save(saved)
    said(run_log)
    Predictor(str(saved))
    assert said(run_log) == [line.replace("o/model", f"{saved}/model") for line in case]


def test_a_run_that_was_stopped_ends_when_it_is_resumed(tiny, tmp_path, run_log, monkeypatch):
    folder = tmp_path / "o"
    flags = {"num_train_epochs": 3.0, "do_eval": True, "eval_every": "1epoch"}
    monkeypatch.setattr(
        "bert_tf.tasks.classification.task.Classification.metrics", stop_once := StopOnce()
    )
    with pytest.raises(Terminated):
        registry.run(options(tiny, folder, **flags))
    assert stop_once.metrics
    (line,) = find_source(str(folder)).notes
    assert line == f"{folder}/best/model.ckpt: step 4 of 13, the run has not ended"
    # The subfolder of the best weights knows it, too, wherever it is.
    shutil.copytree(folder / "best", tmp_path / "copy")
    for best in (folder / "best", tmp_path / "copy"):
        assert find_source(str(best)).notes == [f"{best}/model.ckpt: {line.split(': ')[1]}"]
    before = (folder / "run.json").read_text()
    evaluation = {"do_train": False, "eval_every": None}
    registry.run(options(tiny, folder, **flags | evaluation))
    assert (folder / "run.json").read_text() == before
    said(run_log)
    registry.run(options(tiny, folder, **flags))
    assert said(run_log) == []
    shutil.copytree(folder / "best", tmp_path / "finished")
    for path in (folder, folder / "best", tmp_path / "finished"):
        assert find_source(str(path)).notes == []


class StopOnce:
    """Metrics; the first call also sends SIGTERM, as schedulers do."""

    def __init__(self):
        self.metrics = None

    def __call__(self, examples, predictions):
        if self.metrics is None:
            os.kill(os.getpid(), signal.SIGTERM)
        self.metrics = {"accuracy": 0.5 if self.metrics else 0.6, "matthews": 0.0}
        return {f"eval_{name}": value for name, value in self.metrics.items()}


def test_runs_that_end_otherwise(tiny, tmp_path, run_log):
    folder = tmp_path / "o"
    early = {"eval_every": "1epoch", "early_stopping_patience": 1, "learning_rate": 1e-30}
    registry.run(options(tiny, folder, num_train_epochs=50.0, do_eval=True, **early))
    assert RunFolder(str(folder)).entry("planned_steps", kind=int) == 225
    assert find_source(str(folder)).notes == []
    # Further training has not ended until all of its steps are made.
    edit(folder, planned_steps=300, ended=False)
    assert "of 300, the run has not ended" in find_source(str(folder)).notes[0]
    # Killed between the end and the entry: the same command again has nothing to do.
    registry.run(options(tiny, folder, num_train_epochs=50.0, do_eval=True, **early))
    assert find_source(str(folder)).notes == []


def test_last_checkpoint_without_the_entry(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "o")
    edit(tmp_path / "o", ended=False)
    assert find_source(str(tmp_path / "o")).notes == []


def test_each_seed_has_its_own_end(tiny, tmp_path, monkeypatch):
    made = []

    def stop_second(folder, *args):
        made.append(str(folder))
        if len(made) == 2:
            raise UserError("stopped")

    monkeypatch.setattr(RunFolder, "write_end", stop_second)
    with pytest.raises(UserError):
        registry.run(options(tiny, tmp_path / "o", num_runs=2, do_eval=True))
    assert made == [str(tmp_path / "o" / name) for name in ("run_1", "run_2")]
