"""Heads of a user's own package: exports and conversions, and the errors without them."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, describe, find_source
from bert_tf.data.features import sequence_features
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.run_metadata import model_files
from bert_tf.finetuning.task import Schema
from bert_tf.inference.exported_model import ExportedModel
from bert_tf.modeling import BertClassifier
from bert_tf.options import ConversionOptions, ExportOptions, registry
from bert_tf.saved_models.exported_folder import build_litert_model
from bert_tf.saved_models.onnx_graph import build_onnx_model
from tests.checkpoints.formats.conftest import values_of
from tests.finetuning.own_relations import RelationClassifier, RelationOptions, Relations
from tests.finetuning.own_task import BiEncoder, Retrieval, RetrievalOptions

INPUTS = [("the good film was not slow", 1, 2), ("a plot was good", 0, 3), ("slow film", 0, 1)]


def _write_run(folder, options_class, tiny, model, labels=()):
    """Writes the folder of a training run; returns its checkpoint's variables, and its options."""
    folder.mkdir()
    options = options_class(**tiny.flags, init_checkpoint=tiny.checkpoint)
    variables = checkpoints.named_variables(model)
    rng = np.random.default_rng(5)
    values = {n: rng.normal(0, 0.5, v.shape).astype("float32") for n, v in variables.items()}
    for name, variable in variables.items():
        variable.assign(values[name])
    checkpoint.write(str(folder / "model.ckpt-1"), values)
    for name, text in model_files(options, Schema(tuple(labels))).items():
        (folder / name).write_text(text)
    return values, options


@pytest.fixture
def relations(tiny, tmp_path):
    folder, model = tmp_path / "run", RelationClassifier(tiny.config, 3)
    labels = ["other", "same", "third"]
    return folder, model, *_write_run(folder, RelationOptions, tiny, model, labels)


@pytest.fixture
def bi_encoder(tiny, tmp_path):
    folder, model = tmp_path / "run", BiEncoder(tiny.config)
    _write_run(folder, RetrievalOptions, tiny, model)
    return folder, model


def _convert(source, output, **flags):
    convert(find_source(str(source)), ConversionOptions(output=str(output), **flags))


def _values(folder):
    return values_of(str(folder / "bert_model.ckpt"))


@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_exported_head_has_equal_outputs(relations, tmp_path, format):
    folder, model, _, options = relations
    out = tmp_path / "exported"
    registry.run(ExportOptions(model_dir=str(folder), export_dir=str(out), format=format))
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["BertForRelations"]
    assert list(config["id2label"].values()) == ["other", "same", "third"]
    predict = Predictor.from_output_dir(str(folder))
    assert Predictor.from_output_dir(str(out), engine=format)(INPUTS) == predict(INPUTS)
    task = Relations(*read_model_files(options))
    rows = task.featurize(task.from_inputs(INPUTS), "predict")
    (path,) = out.glob("model.*")
    exported = ExportedModel(str(path), lambda outputs, _: outputs, task.features("predict"), 2)
    actual = exported.predict(rows)["logits"]
    np.testing.assert_allclose(actual, model(rows)["logits"], atol=1e-4)


def test_saved_model_of_own_head_has_equal_outputs(relations, tmp_path):
    folder, model, _, _ = relations
    version = registry.run(ExportOptions(model_dir=str(folder), export_dir=str(tmp_path / "out")))
    signature = tf.saved_model.load(version).signatures["serving_default"]
    ids = np.array([[2, 5, 6, 7, 3], [2, 8, 9, 10, 3]], "int32")
    rows = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    rows["positions"] = np.array([[1, 2], [3, 1]], "int32")
    actual = signature(**{name: tf.constant(value) for name, value in rows.items()})["logits"]
    np.testing.assert_allclose(actual, model(rows)["logits"], atol=1e-5)


@pytest.mark.parametrize("name", ["hugging_face", "model.keras", "model.weights.h5"])
def test_own_head_is_converted_and_back(relations, tmp_path, name):
    folder, _, expected, _ = relations
    to = name if name == "hugging_face" else "auto"
    _convert(folder, tmp_path / name, to=to)
    if name == "hugging_face":
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["architectures"] == ["BertForRelations"]
        assert (tmp_path / name / "pooler.safetensors").exists()
    source = find_source(str(tmp_path / name))
    assert source.head is RelationClassifier.head_format
    assert "Head: relations, 3 outputs" in describe(source)
    _convert(tmp_path / name, tmp_path / "back", to="original")
    actual = _values(tmp_path / "back")
    assert actual.keys() == expected.keys()
    for key, value in actual.items():
        np.testing.assert_array_equal(value, expected[key])


def test_own_head_is_converted_on_request(relations, tmp_path):
    folder, _, expected, _ = relations
    _convert(folder, tmp_path / "out", to="original", head="relations")
    assert _values(tmp_path / "out").keys() == expected.keys()
    _convert(folder, tmp_path / "encoder", to="original", head="encoder")
    assert not any(name.startswith("relation") for name in _values(tmp_path / "encoder"))
    with pytest.raises(UserError, match=r"--head must be .* encoder.* relations.*Received: ours"):
        _convert(folder, tmp_path / "other", to="original", head="ours")


def test_own_head_restores_from_checkpoint_and_keras_file(relations, tmp_path):
    folder, _, expected, _ = relations
    _convert(folder, tmp_path / "model.keras")
    for path in (folder, tmp_path / "model.keras"):
        model = RelationClassifier.from_checkpoint(str(path), num_labels=3)
        for name, variable in checkpoints.named_variables(model).items():
            np.testing.assert_array_equal(variable, expected[name])


def test_keras_file_of_a_class_that_was_not_imported(relations, tmp_path):
    path = tmp_path / "model.keras"
    relations[1].save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    config |= {"module": "antigravity", "registered_name": "other>RelationClassifier"}
    members["config.json"] = json.dumps(config)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(UserError, match=r"It contains: antigravity\.RelationClassifier"):
        find_source(str(path))


def test_head_without_format_cannot_be_converted(bi_encoder, tmp_path):
    folder, model = bi_encoder
    model.save(tmp_path / "model.keras")
    message = "BiEncoder has no attribute head_format"
    flags = {"to": "hugging_face", "bert_config_file": str(folder / "bert_config.json")}
    for path in (folder, tmp_path / "model.keras"):
        with pytest.raises(UserError, match=message):
            _convert(path, tmp_path / "out", **flags)
        assert message in describe(find_source(str(path)))
    assert not (tmp_path / "out").exists()
    _convert(folder, tmp_path / "encoder", to="hugging_face", head="encoder")


def test_head_without_onnx_outputs(bi_encoder, tmp_path):
    folder, _ = bi_encoder
    flags = {"model_dir": str(folder), "export_dir": str(tmp_path / "out")}
    with pytest.raises(UserError, match=r"BiEncoder .*it has no method onnx_outputs\(graph, hid"):
        registry.run(ExportOptions(format="onnx", **flags))
    assert not (tmp_path / "out").exists()
    registry.run(ExportOptions(format="litert", **flags))
    texts = ["good film", "a slow plot"]
    expected = Predictor.from_output_dir(str(folder))(texts)
    actual = Predictor.from_output_dir(str(tmp_path / "out"), engine="litert")(texts)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "architectures" not in config


def test_inputs_of_different_ranks_need_a_saved_model(bi_encoder, tmp_path, monkeypatch):
    folder, _ = bi_encoder
    features = (*sequence_features(8), *sequence_features(8, 2, prefix="passages/"))
    names = (*BiEncoder.input_names, *(feature.name for feature in features[3:]))
    monkeypatch.setattr(Retrieval, "features", lambda self, split: features)
    monkeypatch.setattr(BiEncoder, "input_names", names)
    flags = {"model_dir": str(folder), "export_dir": str(tmp_path / "out")}
    for name in ("onnx", "litert"):
        message = r"passages/input_ids has 3 dimensions, not input_rank=2"
        with pytest.raises(UserError, match=message):
            registry.run(ExportOptions(format=name, **flags))
    assert not (tmp_path / "out").exists()


def test_model_of_an_unregistered_task_is_not_converted(relations, tmp_path, monkeypatch):
    monkeypatch.delitem(registry._own_tasks, "own_relations")
    with pytest.raises(UserError, match="own_relations is not a registered task: first import"):
        _convert(relations[0], tmp_path / "converted", to="hugging_face")
    _convert(relations[0], tmp_path / "encoder", to="hugging_face", head="encoder")


def test_missing_input_is_named(tiny):
    with pytest.raises(ValueError, match="The input 'positions' is missing"):
        RelationClassifier(tiny.config, 2)({"input_ids": np.ones((2, 8), "int32")})


class Scaled(BertClassifier):
    def call(self, inputs, training=None, dropout_seed=None):
        outputs = super().call(inputs, training=training, dropout_seed=dropout_seed)
        return {"logits": 2 * outputs["logits"]}


class FirstToken(BertClassifier):
    def pool(self, encoded, inputs):
        return encoded["sequence_output"][:, 0]


class Pooling:
    pool = FirstToken.pool


class Mixed(Pooling, BertClassifier):
    pass


@pytest.mark.parametrize("model_class", [Scaled, FirstToken, Mixed])
def test_formats_of_another_head_are_not_inherited(tiny, model_class):
    model = model_class(tiny.config, 3)
    with pytest.raises(UserError, match=f"{model_class.__name__} cannot be exported to ONNX"):
        build_onnx_model(model)
    assert model.head_format is None
    assert build_litert_model(model)
    assert BertClassifier.head_format.model is BertClassifier
