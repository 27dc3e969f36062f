"""Bitwise exact round trips through each format, for each head."""

import json
import logging
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import describe, find_source, heads
from bert_tf.commands import convert_checkpoint
from bert_tf.config import BertConfig
from bert_tf.optimization import create_optimizer
from bert_tf.options import ConversionOptions
from tests.checkpoints.formats.conftest import (
    LABELS,
    NAMES,
    assert_same,
    convert_path,
    values_of,
    write_model,
)
from tests.oracle import ROOT

OUTPUT_NAMES = {"hugging_face": "model", "keras": "model.keras", "weights_h5": "model.weights.h5"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("to", OUTPUT_NAMES)
def test_round_trip(models, name, to, tmp_path):
    converted = tmp_path / OUTPUT_NAMES[to]
    convert_path(models[name], converted, to=to, head=name)
    convert_path(converted, tmp_path / "restored", to="original")
    restored = tmp_path / "restored"
    assert_same(str(models[name] / "bert_model.ckpt"), str(restored / "bert_model.ckpt"))
    copied = {"hugging_face": ["bert_config.json", "vocab.txt"], "keras": ["bert_config.json"]}
    for file in copied.get(to, []):
        assert (restored / file).read_bytes() == (models[name] / file).read_bytes()
    if to == "hugging_face" and name == "token":
        assert (restored / "labels.txt").read_text().split() == LABELS
    assert {path.name for path in tmp_path.iterdir()} == {converted.name, "restored"}


def test_keras_file_loads_with_keras(models, tmp_path):
    convert_path(models["token"], tmp_path / "x.keras", head="token")
    model = keras.saving.load_model(tmp_path / "x.keras")
    assert type(model) is heads.registered()["token"].model
    values = values_of(str(models["token"] / "bert_model.ckpt"))
    for key, variable in checkpoints.named_variables(model).items():
        np.testing.assert_array_equal(np.asarray(variable), values[key])


def _save_training_checkpoint(tiny, folder):
    model = heads.registered()["classification"].model(tiny.config, 3)
    optimizer = create_optimizer(1e-3, 10, 2)
    optimizer.build(model.trainable_variables)
    for index, (_, slots) in enumerate(optimizer.slots()):
        for value in slots.values():
            value.assign(np.full(value.shape, index + 1, "float32"))
    optimizer.iterations.assign(7)
    loss_scale = {"loss_scale/value": keras.Variable(8.0)}
    return checkpoints.save_snapshot(
        str(folder), checkpoints.snapshot(model, optimizer, loss_scale)
    )


def test_optimizer_is_kept_or_stripped(tiny, tmp_path):
    prefix = _save_training_checkpoint(tiny, tmp_path)
    convert_path(tmp_path, tmp_path / "copy.ckpt")
    assert_same(prefix, str(tmp_path / "copy.ckpt"))
    convert_path(prefix, tmp_path / "small.ckpt", strip_optimizer=True)
    stripped, original = values_of(str(tmp_path / "small.ckpt")), values_of(prefix)
    assert len(stripped) == 39 + 2
    assert len(original) == 3 * 41 + 2
    for name, value in stripped.items():
        assert value.tobytes() == original[name].tobytes()
    # The training run's latest checkpoint is unchanged.
    assert checkpoint.latest(str(tmp_path)) == prefix


def test_optimizer_variables_are_dropped_without_a_word(tiny, tmp_path, caplog):
    prefix = _save_training_checkpoint(tiny, tmp_path)
    caplog.set_level(logging.INFO)
    flags = {"bert_config_file": str(tiny.folder / "bert_config.json")}
    convert_path(prefix, tmp_path / "x.keras", **flags)
    assert not re.search("Adam|dropping|[Nn]ot converted", caplog.text)
    convert_path(prefix, tmp_path / "encoder.ckpt", head="encoder", **flags)
    names = values_of(str(tmp_path / "encoder.ckpt")).keys()
    assert "output_bias" not in names
    assert "output_bias/adam_m" not in names
    assert "bert/pooler/dense/bias/adam_v" in names
    assert "global_step" in names


def test_optimizer_is_stripped_from_models_with_more_variables(tiny, tmp_path):
    # A head may have a scalar of its own.
    values = {"x/kernel": np.float32([1]), "x/kernel/adam_m": np.float32([2]), "x/scale": 3.0}
    convert_path(write_model(tmp_path / "a", tiny, "encoder", **values), tmp_path / "b.ckpt")
    convert_path(tmp_path / "b.ckpt", tmp_path / "c.ckpt", strip_optimizer=True)
    names = {*values_of(str(tmp_path / "b.ckpt"))} - {*values_of(str(tmp_path / "c.ckpt"))}
    assert names == {"x/kernel/adam_m"}


@pytest.mark.parametrize(
    "names",
    [
        ["electra/embeddings/word_embeddings", "discriminator_predictions/dense/kernel"],
        ["bert/embeddings/word_embeddings", "bert/encoder/transformer/group_0/ffn_1/kernel"],
        ["resnet/conv1/kernel", "global_step"],
    ],
)
def test_models_that_are_no_bert_are_refused(tmp_path, names):
    checkpoint.write(str(tmp_path / "a.ckpt"), {name: np.ones([2, 2], "float32") for name in names})
    with pytest.raises(UserError, match=rf"not all weights of BERT.*{names[0]}"):
        convert_path(tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    assert not (tmp_path / "b.ckpt.index").exists()
    text = describe(find_source(str(tmp_path / "a.ckpt")))
    assert "Configuration: none, this is not a BERT model: it has no bert/e" in text


@pytest.mark.parametrize("scope", ["", "module/"])
def test_names_of_other_programs_are_read(tiny, tmp_path, scope):
    """Such as ports of the original to TensorFlow 2, and fine-tuned TensorFlow Hub modules."""
    folder = write_model(tmp_path / "a", tiny, "encoder")
    expected = values_of(str(folder / "bert_model.ckpt"))
    renamed = {
        scope + re.sub("(attention/output/)?LayerNorm", r"\1layer_normalization_3", name): value
        for name, value in expected.items()
    }
    slots = {f"{name}/Adam": value for name, value in renamed.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), {**renamed, **slots, "beta1_power": 0.9})
    convert_path(folder, tmp_path / "b.ckpt", strip_optimizer=True)
    assert_same(
        str(tmp_path / "b.ckpt"),
        str(write_model(tmp_path / "c", tiny, "encoder") / "bert_model.ckpt"),
    )


def test_export_of_an_estimator_is_read(tiny, tmp_path):
    values = values_of(tiny.checkpoint)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(name, initializer=tf.constant(value), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "export"))
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
    (tmp_path / "export" / "assets").mkdir()
    shutil.copy(tiny.folder / "vocab.txt", tmp_path / "export" / "assets")
    config = str(tiny.folder / "bert_config.json")
    convert_path(tmp_path / "export", tmp_path / "b", to="original", bert_config_file=config)
    assert_same(str(tmp_path / "b" / "bert_model.ckpt"), tiny.checkpoint)
    assert (tmp_path / "b" / "vocab.txt").exists()


def test_extra_config_keys_and_gelu_variant_are_kept(tiny, tmp_path):
    config = BertConfig.from_dict(
        {**tiny.config.to_dict(), "directionality": "bidi", "pooler_fc_size": 768}
    )
    folder = write_model(tmp_path / "a", tiny, "encoder", config)
    convert_path(folder, tmp_path / "converted", to="hugging_face")
    converted = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert converted["hidden_act"] == "gelu_pytorch_tanh"
    assert converted["layer_norm_eps"] == 1e-12
    convert_path(tmp_path / "converted", tmp_path / "restored.ckpt")
    assert BertConfig.from_json_file(str(tmp_path / "bert_config.json")) == config


def test_files_next_to_a_prefix_are_not_overwritten(models, tmp_path):
    (tmp_path / "bert_config.json").write_text('{"vocab_size": 3}')
    with pytest.raises(UserError, match=r"bert_config\.json: already exists"):
        convert_path(models["encoder"], tmp_path / "x.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["bert_config.json"]
    assert (tmp_path / "bert_config.json").read_text() == '{"vocab_size": 3}'


def test_labels_and_casing_options(models, tmp_path):
    for number, labels in enumerate(("x,y,z", str(models["token"] / "labels.txt"))):
        options = ConversionOptions(
            input=str(models["classification"]),
            output=str(tmp_path / str(number)),
            to="hugging_face",
            labels=labels,
            do_lower_case=bool(number),
        )
        convert_checkpoint.run(options)
    first, second = (json.loads((tmp_path / n / "config.json").read_text()) for n in "01")
    assert first["id2label"] == {"0": "x", "1": "y", "2": "z"}
    assert first["label2id"] == {"x": 0, "y": 1, "z": 2}
    assert list(second["id2label"].values()) == LABELS
    tokenizer = json.loads((tmp_path / "0" / "tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is False


def test_run_ner_directory_is_exported_with_labels(models, tmp_path):
    for path in models["token"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    run = {"script": "run_ner", "flags": {"do_lower_case": False}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    source = find_source(str(tmp_path))
    assert (source.head.name, source.do_lower_case, source.labels) == ("token", False, LABELS)
    convert_path(tmp_path, tmp_path / "x", to="hugging_face")
    actual = json.loads((tmp_path / "x" / "config.json").read_text())
    assert actual["architectures"] == ["BertForTokenClassification"]


def test_run_multiple_choice_directory_is_converted_and_read_back(models, tmp_path, run_log):
    for path in models["classification"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({"script": "run_multiple_choice", "flags": {}}))
    (tmp_path / "labels.txt").write_text("0\n1\n2\n3\n")
    convert_path(tmp_path, tmp_path / "x", to="hugging_face")
    actual = json.loads((tmp_path / "x" / "config.json").read_text())
    assert actual["architectures"] == ["BertForMultipleChoice"]
    assert "Ignoring the labels" not in run_log.text
    assert find_source(str(tmp_path / "x")).head.name == "multiple_choice"


def test_command_line(models, tmp_path):
    command = [sys.executable, str(ROOT / "convert_checkpoint.py")]
    command += [f"--input={models['classification']}", f"--output={tmp_path / 'x'}"]
    result = subprocess.run([*command, "--to=hugging_face"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "41 variables (classification)" in result.stderr
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("ERROR: --to=auto does not fit --output=")


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("out", {"bert_config.json": "WARNING", "vocab.txt": "WARNING"}),
        ("x.weights.h5", {"bert_config.json": "INFO", "vocab.txt": "WARNING"}),
        ("x.keras", {"vocab.txt": "WARNING"}),
        ("hf", {}),
    ],
)
def test_output_without_config_and_vocabulary_is_reported(models, tmp_path, run_log, name, levels):
    for path in models["classification"].glob("*" if name == "hf" else "bert_model*"):
        shutil.copy(path, tmp_path)
    config = models["classification"] / "bert_config.json"
    flags = {} if name == "out" else {"bert_config_file": str(config)}
    (tmp_path / "new").mkdir()
    to = {"out": "original", "hf": "hugging_face"}.get(name, "auto")
    convert_path(tmp_path, tmp_path / "new" / name, to=to, **flags)
    found = {
        record.getMessage().split()[5].rstrip(":"): record.levelname
        for record in run_log.records
        if "does not include" in record.getMessage()
    }
    assert found == levels
