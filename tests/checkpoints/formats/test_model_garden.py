"""Checkpoints of the TensorFlow Model Garden.

`model_garden/v1` and `v2` were written by `tf.train.Checkpoint(encoder=...)` with `BertEncoder`
and `BertEncoderV2` of tf-models-official 2.20 (tf_keras 2.21, TensorFlow 2.21), with random
weights; `outputs.npz` contains their outputs.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source, model_garden
from bert_tf.config import BertConfig
from bert_tf.modeling import BertModel
from tests.checkpoints.formats.conftest import convert_path

FOLDER = Path(__file__).parent / "model_garden"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_outputs_match_the_model_garden(version, tmp_path):
    source = find_source(str(FOLDER / version))
    assert source.kind == "model_garden"
    convert_path(FOLDER / version, tmp_path / "x", to="original")
    config = BertConfig.from_json_file(str(tmp_path / "x" / "bert_config.json"))
    assert (config.num_attention_heads, config.hidden_act) == (2, "gelu")
    model = BertModel(config)
    restored = checkpoint.restore(model, str(tmp_path / "x" / "bert_model.ckpt"))
    assert restored.new == restored.unused == ()
    expected = np.load(FOLDER / version / "outputs.npz")
    outputs = model({name: expected[name] for name in expected.files if "output" not in name})
    mask = expected["input_mask"].astype(bool)
    for name in ("sequence_output", "pooled_output"):
        actual, expected_output = np.asarray(outputs[name]), expected[name]
        if name == "sequence_output":
            actual, expected_output = actual[mask], expected_output[mask]
        np.testing.assert_allclose(actual, expected_output, atol=1e-5)


def test_config_mismatch_is_rejected(tmp_path, tiny):
    for path in (FOLDER / "v2").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    other = BertConfig.from_dict({**tiny.config.to_dict(), "num_attention_heads": 4})
    (tmp_path / "bert_config.json").write_text(other.to_json_string())
    with pytest.raises(UserError, match="num_attention_heads is 4, but 2 in the weights"):
        find_source(str(tmp_path)).config()


def test_exported_functional_model_has_one_encoder(tiny, tmp_path):
    """Keras' export writes the variables of a functional model twice."""
    encoder = BertModel(tiny.config)
    ids = keras.Input((None,), dtype="int32", name="input_ids")
    head = keras.layers.Dense(1)(encoder({"input_ids": ids})["pooled_output"])
    keras.Model(ids, head).export(tmp_path / "export", verbose=False)
    source = find_source(str(tmp_path / "export"))
    expected = checkpoints.named_variables(encoder)
    actual = dict(source.read(expected))
    for name, variable in expected.items():
        np.testing.assert_array_equal(actual[name], np.asarray(variable), err_msg=name)
    (note,) = source.notes
    assert note.count("/kernel") == 1


def test_several_encoders_are_rejected(tiny, tmp_path):
    encoders = tf.train.Checkpoint(
        one=tf.Variable(tf.zeros([9, 4]), name="word_embeddings/embeddings"),
        other=tf.Variable(tf.ones([9, 4]), name="word_embeddings/embeddings"),
    )
    encoders.write(str(tmp_path / "bert_model.ckpt"))
    with pytest.raises(UserError, match="several encoders"):
        find_source(str(tmp_path))


def test_optimizer_and_heads_are_ignored(tmp_path):
    source = find_source(str(FOLDER / "v2"))
    reader = tf.train.load_checkpoint(str(FOLDER / "v2" / "bert_model.ckpt"))
    root = tf.train.Checkpoint()
    for number, (name, key) in enumerate(model_garden._list_variables(reader, "")):
        setattr(root, f"part_{number}", tf.Variable(reader.get_tensor(key), name=name))
    root.optimizer = tf.train.Checkpoint(
        v=tf.Variable(tf.zeros([19, 16]), name="word_embeddings/embeddings")
    )
    root.head = tf.Variable(tf.zeros([3]), name="classifier/bias")
    actual = find_source(root.save(str(tmp_path / "ckpt")))
    assert actual.shapes() == source.shapes()
    assert actual.notes == [
        f"Ignoring variables of {tmp_path}/ckpt-1 that are not part of BERT: classifier/bias"
    ]


def test_other_object_based_checkpoints_are_rejected(tmp_path):
    prefix = tf.train.Checkpoint(x=tf.Variable(1.0, name="scale")).save(str(tmp_path / "ckpt"))
    with pytest.raises(UserError, match=r"no BERT encoder .*It contains: scale"):
        find_source(prefix)
    # For example the checkpoint of a SavedModel that only preprocesses.
    prefix = tf.train.Checkpoint().save(str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"no BERT encoder .*It contains: no weights"):
        find_source(prefix)
