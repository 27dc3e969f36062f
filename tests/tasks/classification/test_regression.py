"""Regression with several numbers per text, and with large numbers."""

import csv
import glob
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import Predictor
from bert_tf.base.errors import UserError
from bert_tf.commands import convert_checkpoint, export_model
from bert_tf.commands.options import ConversionOptions, ExportOptions
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.modeling import BertClassifier
from bert_tf.tasks import classification
from bert_tf.tasks.classification.task import Classification
from tests.finetuning.helpers import write_json_lines
from tests.tasks.classification.test_custom_runs import custom_options, sentences, write

TRAIN = {"do_train": True, "num_train_epochs": 40.0, "learning_rate": 2e-3}


def score(text):
    return text.split().count("good")


def write_labels(path, labels):
    rows = [{"text": f"good {n}", "label": label} for n, label in enumerate(labels)]
    write_json_lines(path, rows)
    return str(path)


def price(text):
    return 3e5 + 1e5 * score(text) + 0.5


@pytest.fixture(scope="module")
def prices(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prices")
    for name, count in (("train.tsv", 100), ("dev.tsv", 20), ("test.tsv", 5)):
        write(folder / "data", name, [(price(text), text) for text in sentences(count, seed=count)])
    run = custom_options(tiny, folder, **TRAIN, do_eval=True, do_predict=True)
    return folder, classification.run(run).metrics


def read_run(folder):
    return json.loads((folder / "out" / "run.json").read_text())


def read_predictions(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_large_numbers_are_learned_in_their_own_unit(prices):
    folder, metrics = prices
    labels = np.array([price(text) for text in sentences(20, seed=20)])
    assert metrics["eval_pearson"] > 0.8
    assert metrics["eval_mean_absolute_error"] < 0.5 * np.abs(labels - labels.mean()).mean()
    train = np.float32([price(text) for text in sentences(100, seed=100)]).astype(np.float64)
    saved = json.loads(read_run(folder)["target_scale"])
    assert saved == [pytest.approx([train.mean(), train.std()])]
    # Losses are those of the standardized numbers.
    predictions = np.array(Predictor(folder / "out")(sentences(20, seed=20)))
    losses = np.square((predictions - labels) / train.std())
    assert metrics["eval_loss"] == pytest.approx(losses.mean(), rel=1e-3)
    rows = read_predictions(folder / "out" / "test_predictions.tsv")
    assert [*rows[0]] == ["id", "text", "prediction"]
    values = [float(row["prediction"]) for row in rows]
    assert max(values) > 2e5
    assert not (folder / "out" / "labels.txt").exists()
    assert Predictor(folder / "out")(sentences(5, seed=5)) == pytest.approx(values, rel=1e-4)


def test_evaluation_and_a_teacher_use_the_same_unit(prices, tiny, tmp_path, run_log):
    folder, metrics = prices
    evaluation = custom_options(tiny, folder, do_eval=True)
    assert classification.run(evaluation).metrics["eval_loss"] == metrics["eval_loss"]
    flags = {"teacher": str(folder / "out"), "init_checkpoint": str(folder / "out")}
    flags |= {"do_train": True, "do_eval": True, "num_train_epochs": 1.0}
    flags["data_dir"] = str(folder / "data")
    student = custom_options(tiny, tmp_path, **flags)
    assert classification.run(student).metrics["eval_pearson"] > 0.8
    assert read_run(tmp_path)["target_scale"] == read_run(folder)["target_scale"]


@pytest.mark.parametrize("engine", ["onnx", "litert"])
def test_exports_have_the_unit_of_the_labels(prices, tmp_path, engine):
    folder, _ = prices
    expected = Predictor(folder / "out")(sentences(5, seed=5))
    by_engine = Predictor(folder / "out", engine=engine)(sentences(5, seed=5))
    assert by_engine == pytest.approx(expected, rel=1e-3)
    out = str(tmp_path / "export")
    export_model.run(ExportOptions(model_dir=str(folder / "out"), export_dir=out, format=engine))
    exported = Predictor(out, engine=engine)
    assert exported(sentences(5, seed=5)) == pytest.approx(expected, rel=1e-3)
    assert "target_scale" not in json.loads((tmp_path / "export" / "run.json").read_text())


@pytest.mark.parametrize("to", ["hugging_face", "keras", "original"])
def test_converted_models_have_the_unit_of_the_labels(prices, tmp_path, to):
    folder, _ = prices
    expected = Predictor(folder / "out")(sentences(5, seed=5))
    output = tmp_path / {"keras": "model.keras"}.get(to, "model")
    flags = {"input": str(folder / "out"), "output": str(output), "to": to}
    convert_checkpoint.run(ConversionOptions(**flags, head="classification"))
    task = Predictor(folder / "out")._predict._task
    rows = task.featurize(task.from_inputs(sentences(5, seed=5)), "predict")
    inputs = {name: rows[name] for name in ("input_ids", "input_mask", "segment_ids")}
    paths = [output, folder / "out"]
    if to == "keras":  # next to the `run.json` of the training run
        paths.append(shutil.copy(output, shutil.copytree(folder / "out", tmp_path / "copy")))
    for path in paths:
        model = BertClassifier.from_checkpoint(path, num_labels=1)
        logits = np.asarray(model(inputs)["logits"])[:, 0]
        assert logits == pytest.approx(expected, rel=1e-3)


def test_resumed_runs_keep_the_unit(prices, tiny, tmp_path, run_log):
    folder, _ = prices
    shutil.copytree(folder, tmp_path / "copy")
    rows = [(2 * price(text) + 0.5, text) for text in sentences(100, seed=100)]
    write(tmp_path / "copy" / "data", "train.tsv", rows)
    flags = {**TRAIN, "num_train_epochs": 41.0}
    classification.run(custom_options(tiny, tmp_path / "copy", **flags))
    assert read_run(tmp_path / "copy")["target_scale"] == read_run(folder)["target_scale"]
    # A run of version 1.0 goes on without one.
    run = read_run(folder)
    del run["target_scale"]
    (tmp_path / "copy" / "out" / "run.json").write_text(json.dumps(run))
    flags["num_train_epochs"] = 42.0
    classification.run(custom_options(tiny, tmp_path / "copy", **flags))
    assert "target_scale" not in read_run(tmp_path / "copy")


@pytest.mark.parametrize(
    ("names", "start", "numbers", "scale", "warns"),
    [
        ((), [[90, 10]], [100, 80], [[90, 10]], False),
        ((), [[90, 10]], [1, 4], [[90, 10]], False),
        ((), [[90, 10]], [89, 90], [[90, 10]], True),
        ((), [[90, 10]], [191, 90], [[90, 10]], True),
        ((), None, [1, 10], None, False),
        ((), None, [1, 11], [[6, 5]], True),
        (("a", "b"), [[1, 2], [30, 4]], [{"b": 30, "a": 1}], [[30, 4], [1, 2]], False),
        (("a", "c"), [[1, 2], [30, 4]], [{"b": 30, "a": 1}], [[30, 1], [1, 1]], False),
    ],
)
def test_the_head_of_init_checkpoint_keeps_its_unit(
    tiny, tmp_path, caplog, names, start, numbers, scale, warns
):
    folder = tmp_path / "start"
    folder.mkdir()
    for path in glob.glob(f"{tiny.checkpoint}*"):
        shutil.copy(path, folder)
    run = {"script": "run_classifier", "flags": {}, "problem_type": "regression"}
    run |= {"target_scale": json.dumps(start)} if start else {}
    (folder / "run.json").write_text(json.dumps(run))
    if names:
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))
    train_file = write_labels(tmp_path / "train.jsonl", numbers * 4)
    flags = {"init_checkpoint": str(folder), "train_file": train_file}
    flags |= {"data_dir": None, "do_train": True, "dev_fraction": 0.0}
    options = custom_options(tiny, tmp_path, problem_type="regression", **flags)
    data = classification.dataset_factory.make_dataset(options, "train")
    entry = classification.dataset_factory.scale_entry(options, data)
    assert json.loads(entry.get("target_scale", "null")) == scale
    assert ("have another unit than those of" in caplog.text) == warns


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([1, 5], None),
        ([0.1, 0.1, 0.1], None),
        ([1, 11], [[6, 5]]),
        ([7, 7.1], [[7.05, 0.05]]),
        ([1e-30, 3e-30], [[2e-30, 1e-30]]),
        ([1e9, 1e9 + 2], [[1e9 + 1, 1]]),
        ([1e9 + 1, 1e9 + 1], [[1e9 + 1, 1]]),
        ([[1, 2], [3, 2]], None),
        ([[1, 0.5], [3, 0.52]], [[2, 1], [0.51, 0.01]]),
    ],
)
def test_numbers_are_standardized_by_size_and_spread(tiny, tmp_path, caplog, numbers, scale):
    train_file = write_labels(tmp_path / "train.jsonl", numbers * 4)
    flags = {"train_file": train_file, "data_dir": None, "do_train": True}
    options = custom_options(tiny, tmp_path, problem_type="regression", dev_fraction=0.0, **flags)
    task = give_schema(Classification(*read_model_files(options)))
    saved = json.loads(task.schema.entries.get("target_scale", "null"))
    assert saved == (scale and [pytest.approx(pair, rel=1e-6, abs=0) for pair in scale])
    examples = task.read("train")
    targets, labels = task.problem.targets(examples), np.array(numbers * 4)
    assert targets.dtype == np.float32
    if scale is None:
        np.testing.assert_array_equal(targets, labels.astype(np.float32))
    deviations = np.array(scale or [[0, 1]]).T[1]
    in_unit = targets * task.problem.scale + task.problem.mean
    np.testing.assert_allclose((in_unit - labels) / deviations, 0 * labels, atol=1e-6)
    constant = (labels.min(axis=0) == labels.max(axis=0)).any()
    assert any("rows, the label" in p for p in task.check("train", examples, ())) == constant
    assert ("differ too little" in caplog.text) == (1e8 < labels.max() < 1e10)


@pytest.mark.parametrize(("mean", "unit"), [(0, 1e-4), (1e9, 1)])
def test_small_differences_are_learned(tiny, tmp_path, mean, unit):
    number = lambda text: mean + unit * score(text)  # noqa: E731
    for name, count in (("train.tsv", 100), ("dev.tsv", 20)):
        rows = [(number(text), text) for text in sentences(count, seed=count)]
        write(tmp_path / "data", name, rows)
    flags = {**TRAIN, "problem_type": "regression", "do_eval": True, "do_export": True}
    metrics = classification.run(custom_options(tiny, tmp_path, **flags)).metrics
    texts = sentences(20, seed=20)
    labels, predictor = np.array([*map(number, texts)]), Predictor(tmp_path / "out")
    predictions = np.array(predictor(texts))
    error = np.abs(predictions - labels).mean()
    assert error < 0.5 * labels.std()
    assert metrics["eval_mean_absolute_error"] == pytest.approx(error, rel=1e-2)
    assert metrics["eval_pearson"] > 0.8
    explanation = predictor.explain(max(texts, key=score), steps=256)
    assert 0.1 * unit < abs(explanation.difference) < 10 * unit
    assert explanation.completeness < 0.05 * unit
    (export,) = glob.glob(str(tmp_path / "out" / "export" / "*" / "saved_model.pb"))
    served = tf.saved_model.load(os.path.dirname(export)).signatures["serving_default"]
    (values,) = served(tf.constant(texts)).values()
    np.testing.assert_allclose(values, predictions, atol=0.01 * unit, rtol=1e-7)


def test_several_targets(tiny, tmp_path):
    names = "mood", "size"
    label = lambda text: {"mood": score(text) + 0.5, "size": 20 + text.split().count("film")}  # noqa: E731
    for name, count in (("train.jsonl", 100), ("dev.jsonl", 20), ("test.jsonl", 5)):
        rows = [{"text": text, "label": label(text)} for text in sentences(count, seed=count)]
        write_json_lines(tmp_path / "data" / name, rows)
    flags = {**TRAIN, "do_eval": True, "do_predict": True, "do_export": True}
    metrics = classification.run(custom_options(tiny, tmp_path, **flags)).metrics
    out = tmp_path / "out"
    assert (out / "labels.txt").read_text() == "".join(f"{name}\n" for name in names)
    targets = json.loads((out / "eval_results.json").read_text())["targets"]
    assert [*targets] == [*names]
    for metric in ("pearson", "spearman", "mean_absolute_error"):
        mean = np.mean([targets[name][metric] for name in names])
        assert metrics[f"eval_{metric}"] == pytest.approx(mean, rel=1e-4)
    assert metrics["eval_pearson"] > 0.7
    rows = read_predictions(out / "test_predictions.tsv")
    predictor = Predictor(out)
    assert predictor.labels == [*names]
    for row, prediction in zip(rows, predictor(sentences(5, seed=5)), strict=True):
        assert [*row] == ["id", "text", "prediction_mood", "prediction_size"]
        expected = {name: float(row[f"prediction_{name}"]) for name in names}
        assert prediction == pytest.approx(expected, rel=1e-4)
    by_engine = Predictor(out, engine="onnx")(sentences(5, seed=5))[0]
    assert by_engine == pytest.approx(predictor(sentences(5, seed=5))[0], rel=1e-3)
    evaluation = custom_options(tiny, tmp_path, do_eval=True)
    assert classification.run(evaluation).metrics["eval_loss"] == metrics["eval_loss"]
    resumed = custom_options(tiny, tmp_path, **{**TRAIN, "num_train_epochs": 41.0})
    classification.run(resumed)


def infer(tiny, tmp_path, labels, **flags):
    write_labels(tmp_path / "data" / "train.jsonl", labels * 4)
    options = custom_options(tiny, tmp_path, do_train=True, dev_fraction=0.0, **flags)
    data = classification.dataset_factory.make_dataset(options, "train")
    return data.problem_type, data.labels


@pytest.mark.parametrize(
    ("labels", "flags", "problem_type", "names"),
    [
        ([[1.5, 3.2], [4, 2]], {}, "regression", ("0", "1")),
        ([[1.5], [4]], {}, "regression", ()),
        ([{"a": 1.5}, {"a": 4}], {}, "regression", ()),
        ([{"a": 1.5, "b": 2}, {"b": 3, "a": 1}], {}, "regression", ("a", "b")),
        (["[1.5, 3.2]", "[4, 2]"], {}, "regression", ("0", "1")),
        ([[3, 7], [4, 1]], {"problem_type": "regression"}, "regression", ("0", "1")),
        ([[3, 7], [4, 7]], {"problem_type": "multilabel"}, "multilabel", ("3", "4", "7")),
        ([[3, 7], [4], []], {}, "multilabel", ("3", "4", "7")),
        ([["1.5", "a"], ["b"]], {}, "multilabel", ("1.5", "a", "b")),
        ([[0, 1, 1], [1, 0, 0]], {"problem_type": "regression"}, "regression", ("0", "1", "2")),
        ([{"a": 1, "b": 0}, {"b": 1, "a": 0}], {}, "multilabel", ("a", "b")),
        ([{"a": 1}, {"a": 0}], {}, "multilabel", ("a",)),
    ],
)
def test_problem_type_of_lists(tiny, tmp_path, labels, flags, problem_type, names):
    assert infer(tiny, tmp_path, labels, **flags) == (problem_type, names)


@pytest.mark.parametrize(
    ("labels", "flags", "problem"),
    [
        ([[3, 7], [4, 1]], {}, "jsonl: the numbers 1, 3, 4, 7 may be labels"),
        (
            [[0, 1, 1], [1, 0, 0]],
            {},
            "numbers 0, 1 may be labels.*--problem_type=regression; other",
        ),
        ([[0, 1, 1], [1, 0, 0]], {"problem_type": "multilabel"}, "numbers 0, 1 may be labels"),
        ([{}], {}, "jsonl:1: label '' is not a number"),
        ([[1.5, 3.2], [4, 2, 1]], {}, "jsonl:2: the label has 0, 1, 2, but others have 0, 1$"),
        ([[1.5, 3.2], 4], {}, "jsonl:2: the label has one number, but others have 0, 1"),
        ([[1.5, 3.2], ""], {"problem_type": "regression"}, "jsonl:2: label '' is not a number"),
        ([[0.5, 1], [0.2, 0.3]], {"problem_type": "multilabel"}, "0.5, 1 may be labels"),
        (
            [{"a": 1.5, "b": 2}, {"b": 2, "c": 1}],
            {},
            "jsonl:2: the label has b, c, but others have a, b",
        ),
        ([[1.5, float("nan")], [4, 2]], {}, "jsonl:1: the label must be a string or a finite"),
    ],
)
def test_unclear_or_invalid_lists(tiny, tmp_path, labels, flags, problem):
    with pytest.raises(UserError, match=problem):
        infer(tiny, tmp_path, labels, **flags)


MODULE = """
import numpy as np

from bert_tf.data.features import InputExample

class Scores:
    def get_train_examples(self, data_dir):
        return [InputExample(str(n), "good " * (n % 4), None, LABEL) for n in range(40)]

    get_dev_examples = get_test_examples = get_train_examples

    def get_labels(self):
        return None
"""


def test_task_module(tiny, tmp_path):
    label = "{0: n % 4, '1': np.float32(2)}"
    (tmp_path / "scores.py").write_text(MODULE.replace("LABEL", label))
    flags = {"task_name": None, "task_module": str(tmp_path / "scores.py"), "do_train": True}
    flags |= {"text_column": None, "label_column": None, "num_train_epochs": 1.0, "data_dir": None}
    classification.run(custom_options(tiny, tmp_path, **flags, do_eval=True))
    assert (tmp_path / "out" / "labels.txt").read_text() == "0\n1\n"
    assert [*Predictor(tmp_path / "out")("good")] == ["0", "1"]
    flags["do_train"] = False
    classification.run(custom_options(tiny, tmp_path, **flags, do_predict=True))
    header = (tmp_path / "out" / "test_predictions.tsv").read_text().splitlines()[0]
    assert header.endswith("prediction_0\tprediction_1")


@pytest.mark.parametrize(("divisor", "warns"), [(1, False), (5, True)])
def test_labels_in_another_unit_than_in_training_warn(tiny, tmp_path, run_log, divisor, warns):
    run = custom_options(tiny, tmp_path, problem_type="regression", do_train=True, do_eval=True)
    for name, size, unit in (("train.tsv", 60, 1), ("dev.tsv", 20, divisor)):
        scores = [(f"{index % 6 / unit:.2f}", f"text {index}") for index in range(size)]
        write(tmp_path / "data", name, scores)
    task = give_schema(Classification(*read_model_files(run)))
    train, examples = task.read("train"), task.read("eval")
    problems = [p for p in task.check("eval", examples, train) if "check the unit" in p]
    numbers = [float(example.label) for example in examples]
    here = f"numbers from {min(numbers):g} to {max(numbers):g}"
    assert f"dev.tsv: {here}\n" in run_log.text
    problem = f"dev.tsv: {here}, but from 0 to 5 in the training data: check the unit"
    assert [p.endswith(problem) for p in problems] == [True] * warns
