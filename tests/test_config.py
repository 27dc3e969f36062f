"""bert_config.json: defaults, unknown keys and invalid values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from tests.oracle import golden


def test_defaults_match_the_original():
    sizes = (768, 12, 12, 3072, "gelu", 0.1, 0.1, 512, 16, 0.02)
    assert [*BertConfig(30522).to_dict().values()] == [30522, *sizes]


@pytest.mark.parametrize("name", ["main", "alt_relu", "alt_linear", "alt_tiny"])
def test_original_config_files_round_trip(name):
    path = golden(f"checkpoints/{name}/bert_config.json")
    written = BertConfig.from_json_file(str(path)).to_json_string()
    assert json.loads(written) == json.loads(path.read_text())


def test_unknown_keys_round_trip():
    config = BertConfig.from_dict({"vocab_size": 9, "pooler_fc_size": 768, "directionality": "bi"})
    assert config.directionality == "bi"
    assert json.loads(config.to_json_string())["pooler_fc_size"] == 768
    assert config.to_json_string().endswith("}\n")
    assert config.to_json_string().index("directionality") < config.to_json_string().index("vocab")


@given(st.dictionaries(st.text(min_size=1).map(lambda key: f"x_{key}"), st.integers() | st.text()))
def test_round_trip(extra):
    config = BertConfig.from_dict({"vocab_size": 5, **extra})
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", None),
        ("hidden_size", 768.0),
        ("num_hidden_layers", 0),
        ("num_attention_heads", True),
        ("num_attention_heads", 7),  # no divisor of hidden_size
        ("type_vocab_size", 10**30),
        ("hidden_dropout_prob", 1.0),
        ("attention_probs_dropout_prob", -0.1),
        ("hidden_dropout_prob", "0.1"),
        ("initializer_range", float("inf")),
        ("hidden_act", "swish"),
        ("position_embedding_type", "relative_key"),
    ],
)
def test_invalid_value_names_the_key(key, value):
    with pytest.raises(UserError, match=key):
        BertConfig.from_dict({"vocab_size": 9, key: value})


def test_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "config.json").write_text('\ufeff{"vocab_size": 5}')
    assert BertConfig.from_json_file(str(tmp_path / "config.json")).vocab_size == 5


@pytest.mark.parametrize("act", ["GeLU", "linear", "", None, "tanh", "relu", abs])
def test_original_activations_are_accepted(act):
    assert BertConfig(9, hidden_act=act).hidden_act is act
    assert BertConfig(9, hidden_dropout_prob=None).hidden_dropout_prob is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "lacks the key vocab_size"),
        ('{\n "vocab_size": }', r"config\.json:2: invalid JSON:"),
        ("[1]", r"a JSON object\. Received: '\[1\]'"),
        ('{"vocab_size": 5, "hidden_size": 0}', r"config\.json: hidden_size"),
    ],
)
def test_invalid_files_are_named(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=message):
        BertConfig.from_json_file(str(tmp_path / "config.json"))
    with pytest.raises(UserError, match=r"No such file: .*other\.json .*has: config\.json"):
        BertConfig.from_json_file(str(tmp_path / "other.json"))


def test_misspelled_key_is_rejected():
    with pytest.raises(UserError, match="Unknown key 'hiden_size'; did you mean 'hidden_size'"):
        BertConfig.from_dict({"vocab_size": 9, "hiden_size": 8})
    settings = {"vocab_size": 9, "hidden_size": 24, "hidden_sizes": [24], "x_num_hidden_layer": 0}
    assert BertConfig.from_dict(settings).to_dict().items() >= settings.items()


def test_missing_keys_in_a_file_warn(tmp_path, caplog):
    settings = BertConfig(9).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    BertConfig.from_json_file(str(tmp_path / "config.json"))
    assert not caplog.text
    settings["num_layers"] = settings.pop("num_hidden_layers")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    BertConfig.from_json_file(str(tmp_path / "config.json"))
    assert "config.json: no num_hidden_layers: using the default, 12" in caplog.text
