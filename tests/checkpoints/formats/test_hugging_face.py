"""Reading and writing transformers directories, including those of old versions."""

import json
import math
import re
import shutil
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import (
    configs,
    convert,
    find_source,
    heads,
    hugging_face,
    hugging_face_config,
)
from bert_tf.checkpoints.run_folder import labels_in
from bert_tf.finetuning.model_files import find_model_files, load_config_and_tokenizer
from bert_tf.modeling import get_activation
from bert_tf.options import ConversionOptions, EmbeddingsOptions
from tests.checkpoints.formats.conftest import NAMES, assert_same, convert_path


@pytest.fixture(scope="module")
def folders(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("hugging_face")
    for name in NAMES:
        convert_path(models[name], root / name, to="hugging_face", head=name)
    return root


@pytest.fixture
def modified(folders, tmp_path):
    """Returns a function that copies a directory with modified tensors and config."""

    def modify(name, tensors=lambda tensors: tensors, **config):
        folder = tmp_path / "modified"
        shutil.copytree(folders / name, folder)
        save_file(tensors(load_file(folder / "model.safetensors")), folder / "model.safetensors")
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**settings, **config}))
        return folder

    return modify


def _assert_restored(models, folder, name, tmp_path):
    restored = tmp_path / "restored"
    convert_path(folder, restored, to="original")
    assert_same(str(models[name] / "bert_model.ckpt"), str(restored / "bert_model.ckpt"))


@pytest.mark.parametrize("name", NAMES)
def test_exported_files_and_tensor_names(folders, name):
    files = {path.name for path in (folders / name).iterdir()}
    pooler = set() if heads.registered()[name].has_pooler else {"pooler.safetensors"}
    expected = {"config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"}
    assert files == expected | pooler
    modes = {path.stat().st_mode for path in (folders / name).iterdir()}
    assert len(modes) == 1  # whoever may read one file may read the others
    tensors = load_file(folders / name / "model.safetensors")
    assert any("pooler" in key for key in tensors) is heads.registered()[name].has_pooler
    assert all(key.startswith("bert.") for key in tensors if "embeddings" in key) is (
        name != "encoder"
    )


def test_name_mapping_is_bijective():
    encoder = {name: hugging_face.to_hugging_face(name) for name in configs.encoder_names(12)}
    for head in heads.registered().values():
        theirs = {**encoder, **head.variables}
        assert set(Counter(theirs.values()).values()) == {1}
        stored, *_ = hugging_face.match_names(theirs.values(), heads.hugging_face_names(head))
        assert stored == theirs
    assert hugging_face.to_hugging_face("bert/encoder/layer_11/attention/self/key/kernel") == (
        "bert.encoder.layer.11.attention.self.key.weight"
    )


def test_legacy_names_and_duplicate_tensors_are_read(models, modified, tmp_path):
    def to_legacy(tensors):
        leaves = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        pattern = re.compile("|".join(leaves))
        renamed = {pattern.sub(lambda m: leaves[m[0]], k): v for k, v in tensors.items()}
        words = renamed["bert.embeddings.word_embeddings.weight"].copy()
        bias = renamed.pop("cls.predictions.bias")
        renamed |= {
            f"cls.predictions.decoder.{k}": v for k, v in (("weight", words), ("bias", bias))
        }
        return {**renamed, "bert.embeddings.position_ids": np.arange(24)[None]}

    _assert_restored(models, modified("pretraining", to_legacy), "pretraining", tmp_path)


def test_encoder_with_a_name_prefix_is_read(models, modified, tmp_path):
    folder = modified("encoder", lambda tensors: {f"bert.{key}": v for key, v in tensors.items()})
    _assert_restored(models, folder, "encoder", tmp_path)


def test_sharded_weights_are_read(models, modified, tmp_path):
    folder = modified("classification")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number in range(3):
        file = f"model-0000{number + 1}-of-00003.safetensors"
        shard = dict(list(tensors.items())[number::3])
        save_file(shard, folder / file)
        weight_map |= dict.fromkeys(shard, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    _assert_restored(models, folder, "classification", tmp_path)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match=r"No such file: .*model-00002-of-00003"):
        find_source(str(folder))
    index.write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(UserError, match=r"Received: \.\./secret\.safetensors"):
        find_source(str(folder))


@pytest.mark.parametrize("dtype_name", ["float16", "bfloat16"])
def test_half_precision_weights_are_read_exactly(folders, modified, dtype_name):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype_name == "bfloat16" else np.float16
    folder = modified("encoder", lambda tensors: {k: v.astype(dtype) for k, v in tensors.items()})
    source = find_source(str(folder))
    assert {stored for _, stored in source.variables().values()} == {dtype_name}
    expected = load_file(folders / "encoder" / "model.safetensors")
    for name, value in source.read(source.shapes()):
        key = hugging_face.to_hugging_face(name).removeprefix("bert.")
        expected_value = expected[key].astype(dtype).astype(np.float32)
        expected_value = expected_value.T if name.endswith("kernel") else expected_value
        assert value.tobytes() == np.ascontiguousarray(expected_value).tobytes()


def test_model_without_pooler_is_converted(folders, tmp_path, modified):
    folder = modified("span")
    (folder / "pooler.safetensors").unlink()
    (tmp_path / "z").mkdir()
    for source, to in (("modified", "original"), ("x", "hugging_face"), ("x", "keras")):
        output = str(tmp_path / {"original": "x", "hugging_face": "y", "keras": "z/z.keras"}[to])
        source = find_source(str(tmp_path / source))
        assert not source.notes
        convert(source, ConversionOptions(output=output, to=to))
    assert configs.POOLER[0] not in find_source(str(tmp_path / "x")).shapes()
    assert not (tmp_path / "y" / "pooler.safetensors").exists()
    values = dict(find_source(str(tmp_path / "z" / "z.keras")).read(configs.POOLER))
    assert not any(value.any() for value in values.values())


@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu", "gelu_erf"), ("gelu_pytorch_tanh", "gelu"), ("relu", "relu")]
)
def test_activation_names_are_mapped(modified, theirs, ours):
    config = find_source(str(modified("encoder", hidden_act=theirs))).config()
    assert config.hidden_act == ours
    head = heads.registered()["encoder"]
    assert hugging_face_config.make_config(config, head, 0, None, 0)["hidden_act"] == theirs


def test_gelu_erf_is_exact():
    x = np.linspace(-4, 4, 101, dtype="float32")
    exact = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x]
    np.testing.assert_allclose(np.asarray(get_activation("gelu_erf")(x)), exact, atol=1e-6)
    difference = abs(np.asarray(get_activation("gelu")(x)) - exact).max()
    assert 1e-4 < difference < 5e-4


def test_missing_config_keys_use_defaults():
    config = hugging_face_config.read({"vocab_size": 9}, "config.json")
    assert (config.type_vocab_size, config.hidden_act) == (2, "gelu_erf")
    assert hugging_face_config.read({"hidden_act": "gelu_new"}, "").hidden_act == "gelu"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer_norm_eps": 1e-5}, r"layer_norm_eps=1e-05 is not supported"),
        ({"model_type": "roberta"}, "model_type is 'roberta'"),
        ({"hidden_act": None}, "expected hidden_act, one of gelu.* Received: None"),
        ({"hidden_size": "wide"}, r"config\.json: hidden_size must be a positive integer"),
    ],
)
def test_unsupported_config_settings_are_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        hugging_face_config.read(settings, "config.json")


@pytest.mark.parametrize(
    ("lower", "accents", "expected"),
    [(True, False, "false"), (False, True, "true"), (True, True, None), (True, None, None)],
)
def test_strip_accents_is_read(modified, lower, accents, expected):
    folder = modified("encoder")
    settings = {"do_lower_case": lower, "strip_accents": accents}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert find_source(str(folder)).tokenizer_settings.get("strip_accents") == expected
    (folder / "tokenizer_config.json").unlink()
    normalizer = {"lowercase": lower, "strip_accents": accents}
    (folder / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer}))
    assert find_source(str(folder)).tokenizer_settings.get("strip_accents") == expected


@pytest.mark.parametrize(
    ("name", "settings", "note"),
    [
        ("tokenizer_config", {"tokenize_chinese_chars": False}, "each Chinese character becomes"),
        ("tokenizer", {"normalizer": {"handle_chinese_chars": False}}, "each Chinese character"),
        ("tokenizer_config", {"word_tokenizer_type": "mecab"}, "words of mecab. .*--pretokenized"),
        ("tokenizer_config", {"word_tokenizer_type": "basic", "tokenize_chinese_chars": True}, ""),
    ],
)
def test_unsupported_tokenizers_are_noted(modified, name, settings, note):
    folder = modified("encoder")
    (folder / "tokenizer_config.json").unlink()
    (folder / f"{name}.json").write_text(json.dumps(settings))
    notes = [text for text in find_source(str(folder)).notes if "token" in text]
    assert len(notes) == bool(note)
    assert all(re.search(f"{name}.json: .*{note}", text) for text in notes)


def test_special_tokens_are_read(modified):
    folder = modified("encoder")
    known = (folder / "vocab.txt").read_text().split("\n")[5]
    settings = {"do_lower_case": True, "additional_special_tokens": [known, "[E1]"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    source = find_source(str(folder))
    assert source.tokenizer_settings == {"special_tokens": known}
    (note,) = source.notes
    assert "added tokens are split into pieces: [E1]" in note


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_another_problem_type_is_noted(modified, kind):
    folder = modified("classification")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "problem_type": kind}))
    notes = [note for note in find_source(str(folder)).notes if "--problem_type" in note]
    assert len(notes) == (kind == "multi_label_classification")


ADDED = {"[E1]": {"special": True}, "plot-X": {}, "new york": {}, "slows": {}}


@pytest.mark.parametrize("kind", ["added_tokens.json", "tokenizer.json", "tokenizer_config.json"])
def test_added_tokens_have_their_rows(modified, tmp_path, kind):
    """Their ids are the last ones, in whichever file transformers stores them."""
    name = "embeddings.word_embeddings.weight"
    grow = lambda tensors: {**tensors, name: np.concatenate([tensors[name], tensors[name][:6]])}  # noqa: E731
    folder = modified("encoder", grow, vocab_size=25)
    tokens = [
        {"id": 20 + i, "content": text, "normalized": not flags, **flags}
        for i, (text, flags) in enumerate(ADDED.items())
    ]
    settings = {"do_lower_case": True, "additional_special_tokens": ["[E1]"]}
    content = {token["content"]: token["id"] for token in tokens}
    if kind == "tokenizer.json":
        content = {"added_tokens": tokens}
    elif kind == "tokenizer_config.json":
        content = settings | {"added_tokens_decoder": {str(t["id"]): t for t in tokens}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / kind).write_text(json.dumps(content))
    source = find_source(str(folder))
    expected = "[E1],(?i)plot-X,(?i)new york,(?i)slows"
    assert source.tokenizer_settings["special_tokens"] == expected
    assert not source.notes
    # The vocabulary of the folder does not have them.
    options = EmbeddingsOptions(
        init_checkpoint=str(folder), vocab_file=str(folder / "vocab.txt"), max_seq_length=8
    )
    tokenizer = load_config_and_tokenizer(*find_model_files(options))[1]
    text = "[E1] PLOT-xs New York slows slowss [e1]"
    tokens = ["[E1]", "plot-X", "[UNK]", "new york", "slows"]
    found = tokenizer.tokenize(text)
    assert found[:5] == tokens
    assert tokenizer.convert_tokens_to_ids(["[E1]", "slows"]) == [20, 23]
    # Conversions keep them.
    for to in ("original", "hugging_face"):
        output = tmp_path / to
        convert(source, ConversionOptions(output=str(output), to=to))
        assert (output / "vocab.txt").read_text().endswith("\n".join(["[unused_19]", *ADDED, ""]))
    again = find_source(str(tmp_path / "hugging_face"))
    assert again.tokenizer_settings["special_tokens"] == expected


def test_vocabulary_is_read_from_tokenizer_json(models, modified):
    folder = modified("encoder")
    tokens = (folder / "vocab.txt").read_text().split("\n")[:-1]
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = {
        "normalizer": {"type": "BertNormalizer", "lowercase": False},
        "model": {"type": "WordPiece", "vocab": dict(reversed(ids.items()))},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    source = find_source(str(folder))
    with open(source.vocab_file) as file:
        assert file.read() == (models["encoder"] / "vocab.txt").read_text()
    assert source.do_lower_case is False


def test_placeholder_labels_are_ignored():
    assert labels_in({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}) is None
    assert labels_in({"id2label": {"1": "b", "0": "a"}}) == ["a", "b"]
    assert labels_in({"id2label": {"5": "b", "0": "a"}}) is None
