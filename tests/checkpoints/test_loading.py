"""Creating models from checkpoints with `from_checkpoint`."""

import numpy as np
import pytest

from bert_tf import BertModel, checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.configs import POOLER
from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier, BertSpanLabeler, BertTokenClassifier
from tests.checkpoints.formats.conftest import convert_path, values_of
from tests.oracle import ROOT

SMALL_BERT = ROOT / "examples/small_bert"
INPUTS = {"input_ids": np.array([[2, 7, 9, 3]], "int32")}


def warnings(log):
    return [record for record in log.records if record.levelname == "WARNING"]


def test_all_path_forms_load_the_same_encoder(tmp_path):
    expected = BertModel.from_checkpoint(SMALL_BERT)(INPUTS)["pooled_output"]
    assert np.abs(expected).max() > 0.01
    convert_path(SMALL_BERT, tmp_path / "converted", to="hugging_face")
    for path in (f"{SMALL_BERT}/bert_model.ckpt", tmp_path / "converted"):
        actual = BertModel.from_checkpoint(path)(INPUTS)["pooled_output"]
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_missing_head_is_initialized(caplog):
    caplog.set_level("INFO", "bert_tf")
    model = BertClassifier.from_checkpoint(SMALL_BERT, num_labels=3)
    assert model(INPUTS)["logits"].shape == (1, 3)
    encoder = BertModel.from_checkpoint(SMALL_BERT)
    for actual, expected in zip(model.bert.weights, encoder.weights, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert f"Weights of the encoder from {SMALL_BERT}/bert_model.ckpt; new head" in caplog.text


@pytest.mark.parametrize("name", ["{}/LAMB/m", "{}/adam_v_1"])
def test_slots_and_averages_are_no_weights(tiny, tmp_path, caplog, name):
    values = values_of(tiny.checkpoint)
    slots = {name.format(key): value for key, value in values.items()}
    prefix = str(tmp_path / "x.ckpt")
    checkpoint.write(prefix, {**values, **slots, "beta1_power": 0.9, "global_step": 3})
    restored = checkpoint.restore(BertModel(tiny.config), prefix)
    assert (restored.new, restored.unused) == ((), ())
    assert "layers" not in caplog.text


def test_encoder_without_pooler(tiny, tmp_path):
    names = [name for name in checkpoint.shapes(tiny.checkpoint) if "pooler" not in name]
    prefix = str(tmp_path / "x.ckpt")
    checkpoint.write(prefix, dict(checkpoint.read(tiny.checkpoint, names)))
    # Only a head that reads the pooler needs one.
    head = ("output_bias", "output_weights")
    assert checkpoint.restore(BertTokenClassifier(tiny.config, 3), prefix).new == head
    assert checkpoint.restore(BertClassifier(tiny.config, 3), prefix).new == (*POOLER, *head)
    assert checkpoint.restore(model := BertModel(tiny.config), prefix).new == ()
    assert not np.any(model(INPUTS)["pooled_output"])


def test_different_names_are_shown(tiny, tmp_path):
    values = values_of(tiny.checkpoint).items()
    renamed = {name.replace("query", "q_proj"): value for name, value in values}
    checkpoint.write(str(tmp_path / "x.ckpt"), renamed)
    layer = "bert/encoder/layer_0/attention/self"
    with pytest.raises(UserError, match=f"model: {layer}/query/bias.*checkpoint: {layer}/"):
        checkpoint.restore(BertModel(tiny.config), str(tmp_path / "x.ckpt"))


def test_errors_name_the_file(tmp_path):
    with pytest.raises(UserError, match=r"nowhere"):
        BertModel.from_checkpoint(tmp_path / "nowhere")
    for path in SMALL_BERT.glob("bert_model.ckpt*"):
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(UserError, match=r"No bert_config.json next to .*bert_model\.ckpt"):
        BertModel.from_checkpoint(tmp_path)


def test_models_unlike_the_checkpoint_warn(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("bert_tf.base.progress.log.propagate", True)
    for path in SMALL_BERT.iterdir():
        (tmp_path / path.name).symlink_to(path)
    config = BertConfig.from_json_file(SMALL_BERT / "bert_config.json")
    checkpoint.restore(BertModel(config), tmp_path)
    BertTokenClassifier.from_checkpoint(tmp_path, num_labels=3)
    assert not warnings(caplog)
    heads = config.num_attention_heads
    config.num_attention_heads *= 2
    checkpoint.restore(BertModel(config), tmp_path)
    assert f"BertModel: num_attention_heads is {2 * heads}, but " in caplog.text
    (tmp_path / "run.json").write_text('{"script": "run_ner", "flags": {}}')
    caplog.clear()
    BertModel.from_checkpoint(tmp_path)
    BertTokenClassifier.from_checkpoint(tmp_path, num_labels=3)
    assert not warnings(caplog)
    BertClassifier.from_checkpoint(tmp_path, num_labels=3)
    assert "the head of a BertTokenClassifier, not of a BertClassifier" in caplog.text


def test_unused_layers_and_heads_warn(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("bert_tf.base.progress.log.propagate", True)
    config = BertConfig.from_json_file(SMALL_BERT / "bert_config.json")
    config.num_hidden_layers = 1
    checkpoint.restore(BertModel(config), SMALL_BERT)
    described = checkpoints.load_weights(BertModel(config), str(SMALL_BERT)).describe()
    assert "In the checkpoint but not used: bert/encoder/layer_1 (16), cls/predict" in described
    assert "has more layers than the configuration; unused: bert/e" in caplog.text
    caplog.clear()
    config.num_hidden_layers = 2
    variables = checkpoints.named_variables(BertSpanLabeler(config))
    prefix = str(tmp_path / "model.ckpt")
    checkpoint.write(prefix, {name: variable.value for name, variable in variables.items()})
    checkpoint.restore(BertSpanLabeler(config), prefix)
    assert not warnings(caplog)
    assert checkpoints.load_weights(BertSpanLabeler(config), prefix).describe() == (
        f"Weights from {prefix}"
    )
    assert checkpoints.load_weights(BertModel(config), prefix).describe() == (
        f"Weights of the encoder from {prefix}"
    )
    checkpoint.restore(BertClassifier(config, 2), prefix)
    assert "Randomly initialized: output_bias, output_weights. In the checkpoint but" in caplog.text
