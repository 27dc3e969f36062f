"""`tf_model.h5` and other HDF5 weights of Keras 2."""

import json
import shutil

import h5py
import numpy as np
import pytest

from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import heads, keras_h5
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.modeling import BertModel
from tests.oracle import golden

FOLDER = golden("tfbert/for_sequence_classification")


@pytest.mark.parametrize(
    ("folder", "head", "layer"),
    [
        ("bert_model", "encoder", "last_hidden_state"),
        ("for_pretraining", "pretraining", "hidden_states_2"),
        ("for_masked_lm", "masked_lm", "hidden_states_2"),
        ("for_sequence_classification", "classification", "hidden_states_2"),
        ("for_multiple_choice", "multiple_choice", "hidden_states_2"),
        ("distilbert_model", "encoder", "last_hidden_state"),
    ],
)
def test_encoders_and_heads_of_transformers_4(folder, head, layer):
    path = golden(f"tfbert/{folder}")
    source = find_source(str(path))
    assert heads.find(source, source.variables().keys()).name == head
    assert not source.unknown
    expected = np.load(path / "expected.npz")
    names = {"input_ids": "input_ids", "input_mask": "attention_mask"}
    names |= {} if folder == "distilbert_model" else {"segment_ids": "token_type_ids"}
    inputs = {ours: expected[f"in_{theirs}"] for ours, theirs in names.items()}
    inputs = {name: value.reshape(-1, value.shape[-1]) for name, value in inputs.items()}
    outputs = BertModel.from_checkpoint(path)(inputs)
    np.testing.assert_allclose(outputs["sequence_output"], expected[f"out_{layer}"], atol=2e-5)


def test_labels_are_those_of_the_configuration(tmp_path):
    assert find_source(str(FOLDER)).labels == ["negative", "neutral", "positive"]
    predict = Predictor(FOLDER, script="run_classifier", task_name="tsv")
    assert predict(["It rained all day."])[0].label in ("negative", "neutral", "positive")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("bert/tf_bert_model_1/bert/pooler/dense/kernel:0", "bert.pooler.dense.weight"),
        ("m/bert/encoder/layer_._11/output/LayerNorm/gamma:0", None),
        ("mlm___cls/m/mlm___cls/predictions/bias:0", "cls.predictions.bias"),
        ("m/bert/embeddings/word_embeddings/weight:0", "bert.embeddings.word_embeddings.weight"),
        ("classifier/m/classifier/kernel:0", "classifier.weight"),
        ("dense/dense/kernel:0", "dense.dense.weight"),
    ],
)
def test_names(path, name):
    expected = name or "bert.encoder.layer.11.output.LayerNorm.weight"
    assert keras_h5.torch_name(path) == expected


def copy(tmp_path, *names):
    for name in names or ("config.json", "vocab.txt", "tf_model.h5"):
        shutil.copy(FOLDER / name, tmp_path / name)
    return tmp_path / "tf_model.h5"


def moved(source, target, name=lambda path: path):
    """Copies the arrays of a file to other paths, without groups of layers."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        for path in names_in(old):
            new[name(path)] = old[path][()]


def test_shards_and_weights_inside_a_functional_model(tmp_path):
    source = copy(tmp_path, "config.json", "vocab.txt")
    expected = dict(find_source(str(FOLDER)).read(find_source(str(FOLDER)).variables()))

    def assert_same(path):
        found = find_source(str(path))
        for name, value in found.read(found.variables()):
            np.testing.assert_array_equal(value, expected[name])
        return found

    # The first shard may be empty.
    h5py.File(tmp_path / "tf_model-00001-of-00002.h5", "w").close()
    moved(FOLDER / "tf_model.h5", tmp_path / "tf_model-00002-of-00002.h5")
    shards = {"a": "tf_model-00001-of-00002.h5", "b": "tf_model-00002-of-00002.h5"}
    (tmp_path / "tf_model.h5.index.json").write_text(json.dumps({"weight_map": shards}))
    assert len(assert_same(tmp_path).variables()) == 41
    (tmp_path / "tf_model.h5.index.json").unlink()
    inner = tmp_path / "own.h5"
    moved(FOLDER / "tf_model.h5", inner, lambda path: f"tf_bert_model/{path.split('/', 2)[2]}")
    with h5py.File(inner, "a") as file:
        file["dense/dense/kernel:0"] = np.ones((32, 2), "float32")
    assert assert_same(inner).unknown == ["dense/dense/kernel:0"]
    with h5py.File(inner, "a") as file:
        file["tf_bert_model_1"] = file["tf_bert_model"]
        file.copy("tf_bert_model", "tf_bert_model_2")
    with pytest.raises(UserError, match="2 encoders: tf_bert_model, tf_bert_model_"):
        find_source(str(inner))
    assert not source.exists()


def cycle(file):
    file["bert/again"] = file["bert"]


def many_groups(file):
    for index in range(keras_h5._MAX_OBJECTS + 1):
        file.create_group(f"g/{index}", track_order=False)


def deep(file):
    file.create_group("/".join("x" * 40))


def linked(file):
    name = next(name for name in names_in(file) if name.endswith("query/kernel:0"))
    del file[name]
    file[name] = h5py.ExternalLink("/etc/hosts", "/")


def stored_elsewhere(file):
    name = next(name for name in names_in(file) if name.endswith("query/kernel:0"))
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, "float32", external=[("/etc/hosts", 0, h5py.h5f.UNLIMITED)])


def huge(file):
    name = next(name for name in names_in(file) if name.endswith("query/kernel:0"))
    del file[name]
    file.create_dataset(name, (1 << 20, 1 << 20), "float32", chunks=(1024, 1024))


def wrong_shape(file):
    name = next(name for name in names_in(file) if name.endswith("query/kernel:0"))
    del file[name]
    file[name] = np.ones((32, 31), "float32")


def names_in(file):
    names = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (many_groups, "more groups than a BERT model"),
        (deep, "more groups than a BERT model"),
        (linked, "query/kernel"),
        (stored_elsewhere, "no array of floating-point numbers in the file"),
        (huge, "query/kernel"),
        (wrong_shape, "query/kernel"),
    ],
)
def test_hostile_files_are_one_line(tmp_path, change, message, monkeypatch):
    monkeypatch.setattr(keras_h5, "_MAX_OBJECTS", 1000)
    path = copy(tmp_path)
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(UserError) as error:
        BertModel.from_checkpoint(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_cycles_are_read_once(tmp_path):
    path = copy(tmp_path)
    with h5py.File(path, "a") as file:
        cycle(file)
    assert len(find_source(str(tmp_path)).variables()) == 41


@pytest.mark.parametrize("size", [0, 100, 5000, -1000])
def test_truncated_files_are_one_line(tmp_path, size):
    path = copy(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:size])
    with pytest.raises(UserError, match=r"tf_model\.h5: not a complete HDF5 file"):
        BertModel.from_checkpoint(tmp_path)


def test_heads_of_distilbert_are_refused_by_name(tmp_path):
    for name in ("config.json", "vocab.txt", "tf_model.h5"):
        shutil.copy(golden("tfbert/distilbert_model") / name, tmp_path / name)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["architectures"] = ["DistilBertForSequenceClassification"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    source = find_source(str(tmp_path))
    with pytest.raises(UserError, match="DistilBertForSequenceClassification cannot be read"):
        heads.find(source, source.variables().keys())
    assert BertModel.from_checkpoint(tmp_path)
