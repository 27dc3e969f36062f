"""Invalid and malicious input: raises one-line errors, executes no code and writes nothing."""

import json
import os
import pickle
import shutil
import zipfile

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_tf import checkpoint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source, heads
from bert_tf.commands import convert_checkpoint
from bert_tf.config import BertConfig
from bert_tf.options import ConversionOptions
from tests.base.test_locks import hold
from tests.checkpoints.formats.conftest import LABELS, convert_path, values_of, write_model
from tests.oracle import ROOT


@pytest.fixture
def hf_folder(models, tmp_path):
    """A transformers directory that tests may corrupt."""
    convert_path(models["classification"], tmp_path / "hugging_face", to="hugging_face")
    return tmp_path / "hugging_face"


def _assert_rejected(source, tmp_path, message, **options):
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match=message):
        convert_path(**{"output": tmp_path / "out", "source": source, "to": "original", **options})
    assert sorted(os.listdir(tmp_path)) == before


def test_locked_output_is_rejected(hf_folder, tmp_path):
    process = hold(tmp_path / ".out.lock")
    message = f"out is in use by process {process.pid} on .* pass a different --output"
    _assert_rejected(hf_folder, tmp_path, message)
    process.communicate("")


def test_symlinked_output_is_followed(hf_folder, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "link.keras").symlink_to(tmp_path / "store" / "model.keras")
    convert_path(hf_folder, tmp_path / "link.keras")
    assert (tmp_path / "link.keras").is_symlink()
    assert (tmp_path / "store" / "model.keras").is_file()


@pytest.mark.parametrize("num_bytes", [5, -1])
def test_truncated_download_is_rejected(hf_folder, tmp_path, num_bytes):
    file = hf_folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:num_bytes])
    _assert_rejected(hf_folder, tmp_path, "not a complete safetensors file")


def test_pickle_is_never_loaded(tmp_path):
    class Exploit:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "run"),))

    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit()))
    (folder / "config.json").write_text("{}")
    for source in (folder, folder / "pytorch_model.bin"):
        _assert_rejected(source, tmp_path, r"a pickle.*save_pretrained\(new_folder\)")


WORDS = "bert.embeddings.word_embeddings.weight"
DENSE = "bert.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {"wte.weight": t[WORDS]}, r"no BERT word embeddings.*wte\.weight"),
        (lambda t: {**t, "a.down": t[WORDS]}, r"not part of BERT or the classification head: a\."),
        (lambda t: {k: t[k] for k in t if k != DENSE}, r"Missing: bert/encoder/layer_1/output/den"),
        (lambda t: {k: t[k].astype("float64") for k in t}, "Received: F64"),
        (lambda t: {**t, WORDS: np.full_like(t[WORDS], np.inf)}, "contains NaN or infinity$"),
    ],
)
def test_tensors_of_other_models_are_rejected(hf_folder, tmp_path, change, message):
    file = hf_folder / "model.safetensors"
    save_file(change(load_file(file)), file)
    _assert_rejected(hf_folder, tmp_path, message)


def test_unexpected_tensors_can_be_ignored(hf_folder, tmp_path, run_log):
    tensors = load_file(hf_folder / "model.safetensors")
    save_file({**tensors, "crf.start": np.ones([2], "float32")}, hf_folder / "model.safetensors")
    convert_path(hf_folder, tmp_path / "x.ckpt", head="encoder")
    assert "Not converted: output_bias, output_weights, crf.start" in run_log.text
    assert len(values_of(str(tmp_path / "x.ckpt"))) == 39


def test_untied_word_embeddings_are_rejected(models, tmp_path):
    folder = tmp_path / "hugging_face"
    convert_path(models["pretraining"], folder, to="hugging_face")
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = np.zeros([19, 16], "float32")
    save_file(tensors, folder / "model.safetensors")
    _assert_rejected(folder, tmp_path, r"decoder\.weight differs from the word embeddings")
    convert_path(folder, tmp_path / "x.ckpt", head="encoder")


@pytest.mark.parametrize("to", ["keras", "hugging_face", "sentence_transformers"])
def test_weights_that_are_not_finite_are_rejected(hf_folder, tmp_path, to):
    tensors = load_file(hf_folder / "model.safetensors")
    tensors[WORDS][0] = np.inf
    save_file(tensors, hf_folder / "model.safetensors")
    output = str(tmp_path / ("out.keras" if to == "keras" else "out"))
    options = {"to": to, "output": output, "head": "encoder"}
    _assert_rejected(hf_folder, tmp_path, "contains NaN or infinity$", **options)


def test_config_of_a_different_model_is_rejected(models, hf_folder, tmp_path):
    settings = json.loads((hf_folder / "config.json").read_text())
    changed = {**settings, "hidden_size": 32, "vocab_size": 20, "num_hidden_layers": 3}
    (hf_folder / "config.json").write_text(json.dumps(changed))
    message = (
        r"config\.json: not the configuration of .*: vocab_size is 20, but 19 in the weights; "
        "hidden_size is 32, but 16 .*num_hidden_layers is 3, but 2"
    )
    _assert_rejected(hf_folder, tmp_path, message)
    mismatched = BertConfig.from_json_file(str(models["span"] / "bert_config.json"))
    mismatched.intermediate_size = 99
    (tmp_path / "mismatched.json").write_text(mismatched.to_json_string())
    flags = {"bert_config_file": str(tmp_path / "mismatched.json")}
    _assert_rejected(models["span"], tmp_path, "intermediate_size is 99", **flags)


def test_inconsistent_weight_shapes_are_rejected(tiny, tmp_path):
    folder = write_model(tmp_path / "a", tiny, "encoder")
    values = values_of(str(folder / "bert_model.ckpt"))
    values["bert/pooler/dense/kernel"] = np.zeros([16, 17], "float32")
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    message = r"bert/pooler/dense/kernel \[16, 17\] \(expected: \[16, 16\]\)"
    _assert_rejected(folder, tmp_path, message, to="hugging_face")


def test_export_requires_config_and_vocabulary(models, tiny, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for path in models["encoder"].glob("bert_model*"):
        shutil.copyfile(path, folder / path.name)
    _assert_rejected(folder, tmp_path, "pass --bert_config_file", to="hugging_face")
    shutil.copyfile(models["encoder"] / "bert_config.json", folder / "bert_config.json")
    _assert_rejected(folder, tmp_path, "pass --vocab_file", to="hugging_face")
    (folder / "vocab.txt").write_text("\n".join(f"w{number}" for number in range(20)))
    _assert_rejected(folder, tmp_path, "20 entries, but the model has only 19", to="hugging_face")


@pytest.mark.parametrize(
    ("labels", "name", "message"),
    [
        ("a,b,a", "classification", "--labels: 3 labels, 2 of them different, but the head has 3"),
        ("a,b,c,a", "classification", "4 labels, 3 of them different, but the head has 3"),
        ("a,b", "span", "--labels: 2 labels, 2 of them different, but the head has no outputs"),
        (",".join(LABELS[::-1]), "token", "another order"),
    ],
)
def test_invalid_labels_are_rejected(models, tmp_path, labels, name, message):
    options = {"labels": labels, "head": name, "to": "hugging_face"}
    _assert_rejected(models[name], tmp_path, message, **options)


def test_ambiguous_head_is_rejected(tiny, tmp_path):
    bias, weights = np.zeros(2, "float32"), np.zeros([2, 16], "float32")
    squad_head = {"cls/squad/output_bias": bias, "cls/squad/output_weights": weights}
    folder = write_model(tmp_path / "a", tiny, "classification", **squad_head)
    _assert_rejected(folder, tmp_path, "span and classification", to="hugging_face")
    convert_path(folder, tmp_path / "x", to="hugging_face", head="span")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "hugging_face", "to": "original"}, "config.json: already exists"),
        ({"output": "hugging_face/config.json", "to": "hugging_face"}, "already exists"),
        ({"output": "x.ckpt", "to": "auto"}, r"\.index: already exists"),
        ({"output": "x", "to": "auto"}, "does not fit --output=.*x: expected"),
        ({"output": "x", "to": "keras"}, "--to=keras does not fit"),
        ({"output": "x.keras", "to": "original"}, "--to=original does not fit"),
        (
            {"output": "hugging_face/config.json/x", "to": "original"},
            "must be a folder, but is a file",
        ),
    ],
)
def test_invalid_outputs_are_rejected(hf_folder, tmp_path, options, message):
    (tmp_path / "x.ckpt.index").write_text("")
    output = str(tmp_path / options["output"])
    _assert_rejected(hf_folder, tmp_path, message, output=output, to=options["to"])


@pytest.fixture
def keras_file(models, tmp_path):
    path = tmp_path / "x.keras"
    convert_path(models["encoder"], path)
    return path


def _rewrite_config(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    settings = json.loads(members["config.json"])
    members["config.json"] = json.dumps(change(settings) or settings)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _lambda_layer(settings):
    return {"module": "keras.layers", "class_name": "Lambda", "config": {}, "registered_name": None}


def _nested_object(settings):
    settings["config"]["config"]["hidden_act"] = {"class_name": "system", "module": "os"}


def _other_module(settings):
    settings["config"]["dtype"]["module"] = "antigravity"


@pytest.mark.parametrize("change", [_lambda_layer, _nested_object, _other_module])
def test_keras_file_with_foreign_classes_is_rejected(keras_file, tmp_path, change):
    _rewrite_config(keras_file, change)
    message = r"a model of bert_tf\.modeling.*(Lambda|os\.system|antigravity)"
    _assert_rejected(keras_file, tmp_path, message)


def test_keras_file_with_a_renamed_module_is_read(keras_file):
    _rewrite_config(keras_file, lambda settings: settings.update(module="bert_tf.modeling.moved"))
    assert find_source(str(keras_file)).config().hidden_size == 16


def test_other_keras_models_are_rejected(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "x.keras")
    _assert_rejected(tmp_path / "x.keras", tmp_path, "a model of bert_tf.modeling")
    model.save_weights(tmp_path / "x.weights.h5")
    _assert_rejected(tmp_path / "x.weights.h5", tmp_path, "not a complete weights file")


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5", "x.zip", "x.safetensors"])
def test_malformed_files_are_rejected(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"nonsense")
    _assert_rejected(tmp_path / name, tmp_path, "not a complete|cannot be unpacked")
    _assert_rejected(tmp_path / f"other_{name}", tmp_path, "No such file")


def test_truncated_keras_files_are_rejected(keras_file, models, tmp_path):
    keras_file.write_bytes(keras_file.read_bytes()[:-100])
    _assert_rejected(keras_file, tmp_path, "not a complete .keras file")
    path = tmp_path / "y.weights.h5"
    convert_path(models["span"], path)
    path.write_bytes(path.read_bytes()[:-100])
    _assert_rejected(path, tmp_path, "not a complete weights file|cannot be loaded")


def test_invalid_options_are_rejected():
    for flags, message in (
        ({}, "Missing required flags: --output .*; --input"),
        ({"input": "x"}, "Missing required flags: --output"),
        ({"input": "x", "output": "y", "to": "onnx"}, "--to must be one of"),
    ):
        with pytest.raises(UserError, match=message):
            convert_checkpoint.run(ConversionOptions(**flags))


def test_head_mismatches_are_rejected(models):
    for head, hint in (("token", "classification"), ("classification", "token")):
        with pytest.raises(UserError, match=f"--head={head}, but the model has a {hint} head"):
            heads.find(_declaring(models, hint), set(), head)
    assert heads.find(_declaring(models, "token"), set(), "encoder").name == "encoder"


def _declaring(models, head):
    source = find_source(str(models["encoder"]))
    source.head = heads.registered()[head]
    return source


def test_mismatches_of_the_vocabulary_warn(tmp_path, run_log):
    small = ROOT / "examples" / "small_bert"
    tokens = (small / "vocab.txt").read_text(encoding="utf-8").splitlines()
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*tokens[:200], *tokens[:199:-1]]), "utf-8")
    for flags, message in (
        ({"do_lower_case": False}, "become [UNK]. For an uncased model, pass --do_lower_case=true"),
        ({"vocab_file": str(other)}, "other.txt: differs from"),
    ):
        run_log.clear()
        output = tmp_path / next(iter(flags))
        request = {"input": str(small), "output": str(output), "to": "hugging_face"}
        convert_checkpoint.run(ConversionOptions(**request, **flags))
        (warning,) = [r.getMessage() for r in run_log.records if r.levelname == "WARNING"]
        assert message in warning


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tar.gz", b"x", "not a checkpoint of TensorFlow .* unpack it"),
        ("a.ckpt.data-00000-of-00001", b"x", "No checkpoint .*index does not exist"),
        ("flax_model.msgpack", b"x", "weights of Flax"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "of Git LFS"),
        ("a.zip", b"<!DOCTYPE html>", "a web page"),
    ],
)
def test_files_that_are_not_checkpoints(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_source(str(tmp_path / name))
    if name == "tf_model.h5":
        with pytest.raises(UserError, match=message):
            find_source(str(tmp_path))


def test_zip_of_another_model(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("model/model.safetensors", "x")
    with pytest.raises(UserError, match=r"It contains: model/model\.safetensors"):
        find_source(str(tmp_path / "a.zip"))
