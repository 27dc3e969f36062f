"""Output of `--inspect`."""

import pytest

from bert_tf import checkpoint
from bert_tf.checkpoints.formats import describe, find_source
from bert_tf.commands import convert_checkpoint
from bert_tf.config import BertConfig
from bert_tf.options import ConversionOptions
from tests.checkpoints.formats.conftest import NAMES, convert_path, write_model
from tests.checkpoints.formats.test_model_garden import FOLDER


@pytest.mark.parametrize("name", NAMES)
def test_head_and_parameter_counts(models, name):
    text = describe(find_source(str(models[name])))
    shapes = find_source(str(models[name])).shapes()
    assert f" in {len(shapes)} variables\n" in text
    head = {
        "classification": "Head: classification, 3 outputs (or token",
        "token": "Head: classification, 3 outputs: O, B-PER, I-PER (or token",
        "encoder": "Head: none",
    }.get(name, f"Head: {name}")
    assert head in text
    assert "num_attention_heads 2, hidden_act gelu (from " in text
    assert "Releases of this size: none" in text


def test_optimizer_variables_are_counted_separately(tiny, tmp_path):
    values = {"bert/pooler/dense/bias/adam_m": [0.0] * 16, "global_step": 3}
    folder = write_model(tmp_path / "a", tiny, "encoder", **values)
    plain = describe(find_source(str(write_model(tmp_path / "b", tiny, "encoder"))))
    (line,) = [line for line in plain.splitlines() if line.startswith("Parameters: ")]
    count = int(line.split()[1].replace(",", ""))
    text = describe(find_source(str(folder)))
    assert line in text
    assert f"With Adam slots and step: {count + 17:,} in 41 variables; --strip_optimizer" in text


def test_release_is_identified_by_size(tmp_path, tiny):
    config = BertConfig(30522, 128, 2, 2, 512, max_position_embeddings=512, type_vocab_size=2)
    folder = write_model(tmp_path / "a", tiny, "pretraining", config)
    text = describe(find_source(str(folder)))
    # The smallest release; its published parameter count is 4.4 million.
    assert "Parameters: 4,43" in text
    assert "Releases of this size: uncased_L-2_H-128_A-2 (2020_02_20)" in text
    (folder / "bert_config.json").unlink()
    text = describe(find_source(str(folder)))
    assert "num_attention_heads 2 (guess: hidden_size / 64; the weights do not show it)" in text
    assert "Releases of this size: uncased_L-2_H-128_A-2 (2020_02_20)" in text


def test_inspect_other_formats(models, tmp_path, capsysbinary):
    convert_path(models["span"], tmp_path / "x", to="hugging_face")
    convert_checkpoint.run(ConversionOptions(input=str(tmp_path / "x"), inspect=True))
    text = capsysbinary.readouterr().out.decode()
    assert "Hugging Face safetensors" in text
    assert "Head: span" in text
    assert "Model Garden checkpoint" in describe(find_source(str(FOLDER / "v1")))


def test_variables_of_other_models_are_listed(tmp_path):
    checkpoint.write(str(tmp_path / "x.ckpt"), {"a/layer_10/b": [1.0], "a/layer_9/b": [2.0]})
    text = describe(find_source(str(tmp_path / "x.ckpt")))
    assert "Configuration: none, this is not a BERT" in text
    assert text.index("layer_9") < text.index("layer_10")
    assert "[1]  float32" in text
