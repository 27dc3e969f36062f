"""The engines onnx and litert: predictions equal TensorFlow's, from one export."""

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_tf import Predictor, checkpoint
from bert_tf.base.errors import UserError
from bert_tf.commands import export_model
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.options import ExportOptions, ExtractionOptions
from bert_tf.tasks import classification, extraction
from bert_tf.tasks.classification.options import ClassifierOptions
from tests.api.test_predictor import CONTEXT, SMALL_BERT, trained  # noqa: F401
from tests.checkpoints.formats.conftest import values_of
from tests.finetuning.helpers import write_json_lines
from tests.oracle import ROOT
from tests.tasks.classification.test_custom_runs import custom_options, sentences

ENGINES = ("onnx", "litert")
PAIRS = [("a good film", "it was bad"), ("the plot", ""), ("zzz \u4e2d é", "a b c " * 20)]
INPUTS = {
    "mrpc": PAIRS,
    "squad": [("what was fast", CONTEXT), ("what was the film", "the film")],
    "ner": ["a good film was not slow", ("the", "film"), "film " * 40],
}


def export(folder, out, engine):
    """Exports the model in a folder to the folder `out`, and returns its path."""
    return export_model.run(
        ExportOptions(model_dir=str(folder), export_dir=str(out), format=engine)
    )


def rounded(prediction):
    """Returns a prediction with rounded numbers, as plain containers."""
    if isinstance(prediction, float):
        return round(prediction, 4)
    if isinstance(prediction, dict):
        return {name: rounded(value) for name, value in prediction.items()}
    if hasattr(prediction, "_asdict"):
        return rounded(prediction._asdict())
    is_sequence = isinstance(prediction, list | tuple)
    return [rounded(value) for value in prediction] if is_sequence else prediction


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", INPUTS)
def test_predictions_match_tensorflow(trained, task, engine):  # noqa: F811
    folder, inputs = trained.folder / task, INPUTS[task]
    expected = Predictor.from_output_dir(folder)(inputs)
    predictor = Predictor.from_output_dir(folder, engine=engine)
    assert [*map(rounded, predictor(inputs))] == [*map(rounded, expected)]
    assert predictor([]) == []


_WITHOUT_TENSORFLOW = """
import json, sys
from bert_tf import Predictor

for folder, flags, inputs in json.loads(sys.argv[1]):
    inputs = [tuple(item) if isinstance(item, list) else item for item in inputs]
    predictor = Predictor.from_output_dir(folder, **flags)
    print(predictor(inputs), predictor(inputs[0]))
print({"tensorflow", "keras"} & set(sys.modules))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_prediction_does_not_import_tensorflow(trained, tmp_path, engine):  # noqa: F811
    use = {"engine": engine}
    flags = {**use, "script": "extract_features", "layers": "-1", "pooling": "mean"}
    cases = [(str(trained.folder / task), use, inputs) for task, inputs in INPUTS.items()]
    for task, folder in (("mrpc", trained.folder / "mrpc"), ("encoder", SMALL_BERT)):
        out = export(folder, tmp_path / task, engine)
        cases.append((out, use if task == "mrpc" else flags, PAIRS))
    expected = []
    for folder, flags, inputs in cases:
        predictor = Predictor.from_output_dir(folder, **flags)
        expected.append(f"{predictor(inputs)} {predictor(inputs[0])}")
    command = [sys.executable, "-c", _WITHOUT_TENSORFLOW, json.dumps(cases)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "\n".join([*expected, "set()", ""]), result.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_export_is_reused_for_the_same_checkpoint(trained, tmp_path, engine):  # noqa: F811
    folder = tmp_path / "mrpc"
    shutil.copytree(trained.folder / "mrpc", folder, ignore=shutil.ignore_patterns(*ENGINES))
    file = folder / engine / MODEL_FILES[engine]

    def export_time(**flags):
        Predictor.from_output_dir(folder, engine=engine, **flags)
        return file.stat().st_mtime_ns

    first = export_time()
    assert export_time() == first
    quantized = export_time(precision="int8")
    assert quantized > first
    again = export_time()
    assert again > quantized
    (index,) = folder.glob("model.ckpt-[1-9]*.index")
    os.utime(index)
    assert export_time() > again


def test_each_checkpoint_has_its_own_export(tiny, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a good film\n")
    model = shutil.copytree(SMALL_BERT, tmp_path / "model")
    rng = np.random.default_rng(0)
    values = values_of(str(model / "bert_model.ckpt"))
    noisy = {name: value + rng.normal(0, 0.1, value.shape) for name, value in values.items()}
    checkpoint.write(str(model / "noisy.ckpt"), {n: np.float32(v) for n, v in noisy.items()})

    def extract(name, engine, **flags):
        files = {"input_file": str(texts), "output_file": str(tmp_path / "out.npz")}
        flags |= {"init_checkpoint": str(model / name), "layers": "-1", "pooling": "mean"}
        extraction.run(ExtractionOptions(**files, **flags, engine=engine))
        return np.load(tmp_path / "out.npz")["features"]

    settings = json.loads((model / "bert_config.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**settings, "hidden_act": "relu"}))
    results = []
    for name in ("bert_model.ckpt", "noisy.ckpt"):
        for flags in ({}, {"bert_config_file": str(tmp_path / "other.json")}):
            results.append(extract(name, "onnx", **flags))
            expected = extract(name, "tensorflow", **flags)
            np.testing.assert_allclose(results[-1], expected, atol=1e-5)
    assert not any(np.allclose(a, b, atol=1e-3) for a, b in itertools.combinations(results, 2))


def test_casing_of_an_export_is_checked(trained, tmp_path):  # noqa: F811
    folder = str(trained.folder / "mrpc")
    for path in (folder, export(folder, tmp_path / "onnx", "onnx")):
        with pytest.raises(UserError, match="do_lower_case"):
            Predictor.from_output_dir(path, engine="onnx", do_lower_case=False)
    flags = {"model_dir": folder, "export_dir": str(tmp_path / "file"), "format": "onnx"}
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: not the folder of an export"):
        export_model.run(ExportOptions(**flags))
    flags["pooling"] = "mean"
    with pytest.raises(UserError, match="--pooling does not apply to fine-tuned models"):
        export_model.run(ExportOptions(**flags))


def predict_mrpc(tiny, output_dir):
    flags = {"do_predict": True, "task_name": "MRPC", "data_dir": str(tiny.folder / "mrpc")}
    return {**tiny.flags, **flags, "output_dir": str(output_dir)}


def test_script_requires_a_checkpoint(tiny, tmp_path):
    with pytest.raises(UserError, match="has no checkpoint to export"):
        classification.run(ClassifierOptions(**predict_mrpc(tiny, tmp_path), engine="onnx"))


@pytest.mark.parametrize("engine", ENGINES)
def test_predictor_from_an_export(trained, tmp_path, engine):  # noqa: F811
    folder, out = trained.folder / "mrpc", tmp_path / "exported"
    export(folder, out, engine)
    expected = Predictor.from_output_dir(folder)(PAIRS)
    predictions = Predictor.from_output_dir(out, engine=engine)(PAIRS)
    assert [*map(rounded, predictions)] == [*map(rounded, expected)]
    with pytest.raises(UserError, match=r"model\.\w+: exported with --precision=.*, not int8"):
        Predictor.from_output_dir(out, engine=engine, precision="int8")
    (other,) = {*ENGINES} - {engine}
    with pytest.raises(UserError, match=f"exported with --engine={engine}, not {other}"):
        Predictor.from_output_dir(out, engine=other)
    with pytest.raises(UserError, match=r"contains no checkpoint"):
        Predictor.from_output_dir(out)
    with pytest.raises(UserError, match=r"No such file: .*run\.json"):
        Predictor.from_output_dir(out / MODEL_FILES[engine], engine=engine)


def test_script_evaluates_and_predicts(trained, tiny, tmp_path):  # noqa: F811
    results = {}
    for engine in ("tensorflow", *ENGINES):
        folder = tmp_path / engine
        shutil.copytree(trained.folder / "mrpc", folder, ignore=shutil.ignore_patterns(*ENGINES))
        flags = {**predict_mrpc(tiny, folder), "vocab_file": str(folder / "vocab.txt")}
        flags |= {"bert_config_file": str(folder / "bert_config.json"), "do_eval": True}
        metrics = classification.run(ClassifierOptions(**flags, engine=engine)).metrics
        lines = (folder / "test_results.tsv").read_text().splitlines()
        results[engine] = metrics, np.array([line.split("\t") for line in lines], float)
    expected_metrics, expected_rows = results.pop("tensorflow")
    for metrics, rows in results.values():
        np.testing.assert_allclose(rows, expected_rows, atol=2e-6)
        assert metrics.keys() == expected_metrics.keys()
        np.testing.assert_allclose([*metrics.values()], [*expected_metrics.values()], atol=1e-5)


@pytest.mark.parametrize("pooling", ["none", "cls", "mean", "max", "mean_max"])
def test_features_match_tensorflow(tmp_path, pooling):
    texts = tmp_path / "texts.txt"
    texts.write_text("A film to remember\nthe plot was slow ||| and long\n")
    model = shutil.copytree(SMALL_BERT, tmp_path / "model")
    features = {}
    for engine in ("tensorflow", *ENGINES):
        output = tmp_path / f"{engine}.npz"
        flags = {"input_file": str(texts), "output_file": str(output), "layers": "-1,0"}
        flags |= {"init_checkpoint": str(model), "pooling": pooling, "engine": engine}
        extraction.run(ExtractionOptions(**flags))
        features[engine] = np.load(output)["features"]
    expected = features.pop("tensorflow")
    for values in features.values():
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_features_from_an_encoder_export(tmp_path):
    out = export(SMALL_BERT, tmp_path / "onnx", "onnx")
    flags = {"script": "extract_features", "pooling": "mean", "engine": "onnx"}
    predictor = Predictor.from_output_dir(out, layers="-1", **flags)
    tensorflow = {**flags, "engine": "tensorflow"}
    expected = Predictor.from_output_dir(SMALL_BERT, layers="-1", **tensorflow)("a film")
    np.testing.assert_allclose(predictor("a film").values, expected.values, atol=1e-5)
    with pytest.raises(UserError, match="has only the last layer: pass --layers=-1"):
        Predictor.from_output_dir(out, layers="0", **flags)
    copied = shutil.copy(Path(SMALL_BERT, "vocab.txt"), tmp_path)
    Predictor.from_output_dir(out, layers="-1", vocab_file=copied, **flags)
    Path(copied).write_text("[UNK]\n[CLS]\n[SEP]\nfilm\n")
    with pytest.raises(UserError, match=r"exported with --vocab_file=.*, not"):
        Predictor.from_output_dir(out, layers="-1", vocab_file=copied, **flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"precision": "int8"}, "--engine=tensorflow does not support --precision=int8"),
        ({"engine": "onnx", "do_train": True}, "--engine=onnx is for evaluation and prediction"),
        ({"engine": "onnx", "jit_compile": "true"}, "does not support --jit_compile=true"),
    ],
)
def test_incompatible_flags_are_rejected(tiny, tmp_path, flags, message):
    with pytest.raises(UserError, match=message):
        ClassifierOptions(**predict_mrpc(tiny, tmp_path), **flags).check()


def test_scripts_say_what_to_pass_instead_of_an_export(trained, tiny, tmp_path):  # noqa: F811
    exported = export(trained.folder / "mrpc", tmp_path / "onnx", "onnx")
    flags = {"task_name": "MRPC", "data_dir": str(tiny.folder / "mrpc"), "do_eval": True}
    message = "onnx contains no checkpoint"
    for folders in (
        {"init_checkpoint": exported, "output_dir": str(tmp_path / "out")},
        {"output_dir": exported},
    ):
        with pytest.raises(UserError, match=message):
            classification.run(ClassifierOptions(**flags, **folders, engine="onnx"))


@pytest.mark.parametrize("engine", ENGINES)
def test_damaged_model_is_rejected(trained, tmp_path, engine):  # noqa: F811
    out = export(trained.folder / "mrpc", tmp_path / "exported", engine)
    Path(out, MODEL_FILES[engine]).write_bytes(b"not a model")
    with pytest.raises(UserError, match=rf"load .*{MODEL_FILES[engine]}: "):
        Predictor.from_output_dir(out, engine=engine)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_problem_type_of_an_export(tiny, tmp_path, run_log, kind):
    labels = {"multilabel": [["a"], [], ["a", "b"]], "regression": [0.5, 1.0, 2.25]}[kind]
    texts = sentences(12)
    rows = [{"text": text, "label": labels[n % 3]} for n, text in enumerate(texts)]
    write_json_lines(tmp_path / "data" / "train.jsonl", rows)
    flags = {"do_train": True, "dev_fraction": 0.0, "num_train_epochs": 1.0}
    run = custom_options(tiny, tmp_path, **flags)
    classification.run(run)
    out, exported = tmp_path / "out", tmp_path / "exported"
    export(out, exported, "onnx")
    expected = [*map(rounded, Predictor.from_output_dir(out)(texts))]
    predictor = Predictor.from_output_dir(exported, engine="onnx")
    assert [*map(rounded, predictor(texts))] == expected
    # Version 1.0 stored the problem type as the flag.
    for folder in (out, exported):
        saved = json.loads((folder / "run.json").read_text())
        saved["flags"]["problem_type"] = saved.pop("problem_type")
        assert saved["flags"]["problem_type"] == kind
        (folder / "run.json").write_text(json.dumps(saved))
    predictor = Predictor.from_output_dir(exported, engine="onnx")
    assert [*map(rounded, predictor(texts))] == expected
    run_log.clear()
    classification.run(dataclasses.replace(run, num_train_epochs=2.0))
    changes = [message for message in run_log.messages if " was " in message and "now" in message]
    assert changes == [f"{out}: num_train_epochs was 1.0, now 2.0"]
    assert json.loads((out / "run.json").read_text())["problem_type"] == kind


def test_edited_labels_are_checked(trained, tmp_path):  # noqa: F811
    run = shutil.copytree(trained.folder / "ner", tmp_path / "run")
    out = export(run, tmp_path / "exported", "onnx")
    Predictor.from_output_dir(run, engine="onnx")
    for folder in (run, out):
        with open(os.path.join(folder, "labels.txt"), "a") as file:
            file.write("B-NEW\n")
        with pytest.raises(UserError, match=r"does not fit the model|3 labels, but .* 2 outputs"):
            Predictor.from_output_dir(folder, engine="onnx")


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_share_a_predictor(trained, engine):  # noqa: F811
    predictor = Predictor.from_output_dir(trained.folder / "mrpc", engine=engine)
    inputs = [("a good film " * n, "it was bad") for n in range(1, 9)] * 8
    expected = [*map(predictor, inputs)]
    with ThreadPoolExecutor(8) as pool:
        predictions = [*pool.map(predictor, inputs)]
    assert [*map(rounded, predictions)] == [*map(rounded, expected)]


@pytest.mark.parametrize(
    ("engine", "module"), [("onnx", "onnxruntime"), ("litert", "ai_edge_litert.interpreter")]
)
def test_missing_runtime_is_reported_before_any_work(tiny, tmp_path, monkeypatch, engine, module):
    monkeypatch.setitem(sys.modules, module, None)
    flags = {**predict_mrpc(tiny, tmp_path), "engine": engine, "precision": "int8"}
    with pytest.raises(UserError, match=rf'pip install "bert_tf\[{engine}\]"'):
        ClassifierOptions(**flags).check()
