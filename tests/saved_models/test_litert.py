"""LiteRT exports, compared with the model."""

import functools
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from scipy.special import softmax

from bert_tf import Predictor
from bert_tf.base.errors import UserError
from bert_tf.commands import export_model
from bert_tf.config import BertConfig
from bert_tf.inference.exported_model import INPUTS
from bert_tf.modeling import BertClassifier
from bert_tf.options import ExportOptions
from bert_tf.saved_models.exported_folder import build_litert_model
from bert_tf.saved_models.onnx_graph import build_onnx_model
from tests.api.test_predictor import CONTEXT, trained  # noqa: F401
from tests.saved_models.models import (
    MODELS,
    assert_close,
    check_activation,
    check_pooling,
    make_cases,
    make_random_inputs,
    make_random_model,
)

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


def load_model(content):
    """Returns a function that runs a LiteRT model."""
    runner = interpreter.Interpreter(model_content=content).get_signature_runner()

    def run(inputs):
        values = {name: np.asarray(value, np.int32) for name, value in inputs.items()}
        return {name: value.copy() for name, value in runner(**values).items()}

    return run


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_match_the_model(kind):
    model = make_random_model(MODELS[kind])
    run = load_model(build_litert_model(model))
    names = {output.name for output in build_onnx_model(model).graph.output}
    for inputs, expected in make_cases(model):
        outputs = run(inputs)
        assert outputs.keys() == names
        for name, value in outputs.items():
            np.testing.assert_allclose(value, expected(name), atol=1e-4)


@pytest.mark.parametrize("hidden_act", ["gelu_erf", "relu", "tanh", None])
def test_activations(hidden_act):
    check_activation(hidden_act, lambda model, x: load_model(build_litert_model(model))(x))


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_pooling_ignores_padding(pooling):
    build = functools.partial(build_litert_model, pooling=pooling)
    check_pooling(pooling, lambda model, inputs: load_model(build(model))(inputs))


@pytest.mark.parametrize("kind", ["encoder", "classification", "spans"])
def test_int8_is_smaller_and_close(kind):
    config = BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    keras.utils.set_random_seed(3)
    model, inputs = MODELS[kind](config), make_random_inputs((8, 12), 1)
    contents = [build_litert_model(model, precision) for precision in ("float32", "int8")]
    a, b = (next(iter(load_model(content)(inputs).values())) for content in contents)
    assert_close(a, b)
    assert len(contents[1]) < 0.5 * len(contents[0])


def export(model_dir, export_dir, **flags):
    flags = {"format": "litert", "max_seq_length": 24, **flags}
    options = ExportOptions(model_dir=str(model_dir), export_dir=str(export_dir), **flags)
    return Path(export_model.run(options))


@pytest.mark.parametrize("task", ["mrpc", "squad", "ner"])
def test_export_is_self_contained(trained, tmp_path, task):  # noqa: F811
    folder = export(trained.folder / task, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    run = load_model((folder / "model.tflite").read_bytes())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = ("what was fast", CONTEXT) if task == "squad" else ("a good film", "it was bad")
    encoding = tokenizer.encode(*text)
    values = (encoding.ids, encoding.attention_mask, encoding.type_ids)
    outputs = run({name: [value] for name, value in zip(INPUTS, values, strict=True)})
    if task == "mrpc":
        labels = (folder / "labels.txt").read_text().split()
        expected = Predictor.from_output_dir(trained.folder / task)(text).probabilities
        probabilities = dict(zip(labels, softmax(outputs["logits"][0]), strict=True))
        assert probabilities == pytest.approx(expected, abs=1e-5)
    assert {name: value.shape[:2] for name, value in outputs.items()} == {
        "mrpc": {"logits": (1, 2)},
        "squad": dict.fromkeys(("start_logits", "end_logits"), (1, len(encoding))),
        "ner": {"logits": (1, len(encoding))},
    }[task]


def test_model_file_contains_vocabulary_and_labels(trained, tmp_path):  # noqa: F811
    folder = export(trained.folder / "mrpc", tmp_path / "out")
    with zipfile.ZipFile(folder / "model.tflite") as archive:
        assert {*archive.namelist()} == {"vocab.txt", "labels.txt"}
        for name in archive.namelist():
            assert archive.read(name) == (folder / name).read_bytes()


def test_encoder_with_pooling(tiny, tmp_path):
    folder = export(tiny.folder, tmp_path / "out", pooling="mean", precision="int8")
    inputs = {**make_random_inputs((2, 5), 1), "input_ids": np.full((2, 5), 7)}
    outputs = load_model((folder / "model.tflite").read_bytes())(inputs)
    assert outputs.keys() == {"last_hidden_state", "pooler_output", "sentence_embedding"}
    assert "labels.txt" not in {path.name for path in folder.iterdir()}


class UnsupportedModel(BertClassifier):
    def call(self, inputs, training=None, dropout_seed=None):
        logits = super().call(inputs, training, dropout_seed)["logits"]
        return {"logits": tf.math.igamma(logits, logits)}


def test_failed_conversion_leaves_no_folder(tiny, tmp_path, monkeypatch, capfd):
    model = make_random_model(lambda config: UnsupportedModel(config, 3))
    message = "UnsupportedModel cannot be converted to LiteRT: no operator for Igamma"
    with pytest.raises(UserError, match=message):
        build_litert_model(model)
    assert "Igamma" not in capfd.readouterr().err

    def fail(*args):
        raise UserError(message)

    monkeypatch.setattr("bert_tf.saved_models.exported_folder.build_litert_model", fail)
    with pytest.raises(UserError, match=message):
        export(tiny.folder, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
