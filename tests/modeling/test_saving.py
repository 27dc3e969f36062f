"""Saving and loading `.keras` files and SavedModels, and variable names."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints.formats import find_source
from bert_tf.modeling import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.optimization import create_optimizer
from tests.modeling.helpers import config
from tests.oracle import ROOT, golden

MODELS = {
    "encoder": lambda: BertModel(config(directionality="bidi")),
    "pretrainer": lambda: BertPretrainer(config()),
    "classifier": lambda: BertClassifier(config(), 3),
    "token_classifier": lambda: BertTokenClassifier(config(), 5),
    "span_labeler": lambda: BertSpanLabeler(config(hidden_act="relu")),
}

# Loads a model in a fresh process, saves its outputs, and prints its variable names.
LOAD_AND_RUN = """
import json, sys
import keras, numpy as np
from bert_tf import BertModel
ids = np.arange(24).reshape(2, 12)
inputs = {"input_ids": ids, "masked_lm_positions": np.array([[1, 3], [2, 0]])}
for path in sys.argv[1:]:
    model = keras.saving.load_model(path)
    outputs = {k: np.asarray(v) for k, v in model(inputs).items() if k != "all_encoder_layers"}
    np.savez(f"{path}.npz", **outputs)
    print(json.dumps([v.path for v in model.trainable_variables]))
"""


def save_and_load(model, path):
    model.save(path)
    return keras.saving.load_model(path)


def test_saved_models_load_in_a_fresh_process(tmp_path):
    models = {tmp_path / f"{name}.keras": make_model() for name, make_model in MODELS.items()}
    for path, model in models.items():
        model.save(path)
    command = [sys.executable, "-c", LOAD_AND_RUN, *models]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    inputs = {
        "input_ids": np.arange(24).reshape(2, 12),
        "masked_lm_positions": np.array([[1, 3], [2, 0]]),
    }
    for (path, model), line in zip(models.items(), process.stdout.splitlines(), strict=True):
        assert json.loads(line) == [v.path for v in model.trainable_variables]
        outputs, expected = np.load(f"{path}.npz"), model(inputs)
        for key in outputs.files:
            np.testing.assert_array_equal(outputs[key], np.asarray(expected[key]), err_msg=key)
        assert set(outputs.files) == expected.keys() - {"all_encoder_layers"}


@pytest.mark.parametrize("name", ["encoder", "pretrainer", "classifier"])
def test_exported_model_outputs_match(name, tmp_path):
    model = MODELS[name]()
    model.export(tmp_path / "model", verbose=False)
    inputs = {
        "input_ids": np.arange(24, dtype=np.int32).reshape(2, 12),
        "input_mask": np.array([[1] * 12, [1] * 7 + [0] * 5], np.int32),
        "segment_ids": np.array([[0] * 6 + [1] * 6] * 2, np.int32),
    }
    if name == "pretrainer":
        inputs["masked_lm_positions"] = np.array([[1, 3], [2, 0]], np.int32)
    loaded = tf.saved_model.load(tmp_path / "model")
    served, expected = loaded.serve(inputs), model(inputs)
    for index, layer in enumerate(expected.pop("all_encoder_layers", [])):
        expected[f"all_encoder_layers_{index}"] = layer
    assert served.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(served[key], values, atol=1e-5, err_msg=key)
    assert find_source(str(tmp_path / "model")).shapes().keys() == set(
        checkpoints.named_variables(model)
    )


def test_export_with_custom_signature(tmp_path):
    spec = keras.InputSpec(dtype="int32", shape=(None, 5), name="input_ids")
    model = MODELS["classifier"]()
    model.export(tmp_path / "model", verbose=False, input_signature=[{"input_ids": spec}])
    inputs = {"input_ids": np.ones((1, 5), np.int32)}
    loaded = tf.saved_model.load(tmp_path / "model")
    expected = model(inputs)["logits"]
    np.testing.assert_allclose(loaded.serve(inputs)["logits"], expected, atol=1e-5)


def test_variable_names_match_the_original():
    expected = json.loads(golden("checkpoint_variables.json").read_text())
    names_by_checkpoint = {
        key: {name for name, _, _ in rows if "adam" not in name and name != "global_step"}
        for key, rows in expected.items()
        if isinstance(rows, list)  # a number refers to an identical entry
    }
    models = {"classifier": lambda: BertClassifier(config(), 2), "squad": MODELS["span_labeler"]}
    models["pretraining"] = MODELS["pretrainer"]
    compared = set()
    for key, names in names_by_checkpoint.items():
        kind = key.split("_")[0]
        assert set(checkpoints.named_variables(models[kind]())) == names
        compared.add(kind)
    assert compared == set(models)


def test_variable_names_are_independent_of_encoder_nesting():
    encoder = BertModel(config())
    outer = functional(encoder)
    assert {v.path for v in encoder.trainable_variables} <= {v.path for v in outer.variables}
    assert all(v.path.startswith("bert/") for v in encoder.trainable_variables)


def test_initializers_match_the_original():
    variables = json.loads(golden("checkpoints/main/variables.json").read_text())
    model = checkpoints.named_variables(BertPretrainer(config()))
    compared = 0
    for row in variables:
        if not row["trainable"]:
            continue
        values, stats = np.asarray(model[row["name"]]), row["original_init"]
        assert list(values.shape) == row["shape"]
        assert abs(values).max() <= 2 * 0.2 + 1e-6 or "gamma" in row["name"]
        if values.size >= 4096:
            assert values.std() == pytest.approx(stats["std"], rel=0.05)
        elif stats["std"] == 0:
            np.testing.assert_array_equal(values, stats["mean"])
        compared += 1
    assert compared == len(model)


def functional(*encoders):
    """Returns a functional model of encoders, each with an input of its own."""
    inputs = [keras.Input((8,), dtype="int32", name=f"ids_{i}") for i in range(len(encoders))]
    outputs = [e({"input_ids": x})["pooled_output"] for e, x in zip(encoders, inputs, strict=True)]
    merged = keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]
    return keras.Model(inputs, keras.layers.Dense(1)(merged))


def test_frozen_encoder_stays_frozen_in_a_functional_file(tmp_path):
    encoder = BertModel(config())
    encoder.trainable = False
    model = functional(encoder)
    assert len(model.trainable_variables) == 2
    loaded = save_and_load(model, tmp_path / "x.keras")
    assert not loaded.get_layer("bert").trainable
    assert len(loaded.trainable_variables) == 2
    loaded.get_layer("bert").trainable = True
    assert len(loaded.trainable_variables) == 2 + len(BertModel(config()).trainable_variables)


def test_frozen_layers_stay_frozen(tmp_path):
    model = BertClassifier(config(), 3)
    model.bert.embeddings.trainable = False
    model.bert.encoder.transformer_layers[0].trainable = False
    loaded = save_and_load(model, tmp_path / "x.keras")
    names = [v.path for v in loaded.trainable_variables]
    assert names == [v.path for v in model.trainable_variables]
    assert not any(name.startswith(("bert/embeddings/", "bert/encoder/layer_0/")) for name in names)
    assert loaded.bert.trainable


def test_two_encoders_in_one_model(tiny, tmp_path):
    first = BertModel.from_checkpoint(tiny.folder)
    second = BertModel.from_checkpoint(tiny.folder, name="second")
    model = functional(first, second)
    model.compile(optimizer=create_optimizer(1e-2, 10, 0), loss="mse")
    ids = np.arange(16).reshape(2, 8) % 14
    np.testing.assert_array_equal(
        first({"input_ids": ids})["pooled_output"], second({"input_ids": ids})["pooled_output"]
    )
    paths = [variable.path for variable in model.trainable_variables]
    assert len({*paths}) == len(paths)
    model.fit([ids, ids[::-1]], np.ones((2, 1)), verbose=0)
    expected = model.predict([ids, ids[::-1]], verbose=0)
    loaded = save_and_load(model, tmp_path / "two.keras")
    model.save_weights(tmp_path / "two.weights.h5")
    np.testing.assert_array_equal(loaded.predict([ids, ids[::-1]], verbose=0), expected)
    loaded.load_weights(tmp_path / "two.weights.h5")
    np.testing.assert_array_equal(loaded.predict([ids, ids[::-1]], verbose=0), expected)
    # Each of them can be restored from a checkpoint, and converted.
    checkpoints.load_weights(loaded.get_layer("second"), str(tiny.folder))
    second.save(tmp_path / "second.keras")
    assert "bert/pooler/dense/kernel" in find_source(str(tmp_path / "second.keras")).shapes()


@pytest.mark.slow
def test_compiled_model_loads_in_a_fresh_process(tmp_path):
    model = MODELS["classifier"]()
    model.compile(optimizer=create_optimizer(1e-3, 10, 2))
    model.save(tmp_path / "model.keras")
    code = (
        "import keras, sys; from bert_tf import BertModel\n"
        "print(type(keras.saving.load_model(sys.argv[1]).optimizer).__name__)"
    )
    command = [sys.executable, "-c", code, tmp_path / "model.keras"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.stdout.strip() == "AdamWeightDecay", process.stderr


def test_config_is_restored(tmp_path):
    model = MODELS["encoder"]()
    loaded = save_and_load(model, tmp_path / "model.keras")
    assert loaded.config == model.config
    assert loaded.config.directionality == "bidi"
