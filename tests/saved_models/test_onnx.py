"""ONNX exports, compared with the model."""

import dataclasses
import json
import sys
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
import tokenizers

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.commands import export_model
from bert_tf.config import BertConfig
from bert_tf.inference.exported_model import INPUTS
from bert_tf.modeling import BertModel
from bert_tf.options import ExportOptions
from bert_tf.saved_models.exported_folder import tokenizer_json
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.tokenization import FullTokenizer, convert_to_unicode
from tests import oracle
from tests.saved_models.models import (
    CONFIG,
    MODELS,
    assert_close,
    check_activation,
    check_pooling,
    make_cases,
    make_random_inputs,
    make_random_model,
    to_model_inputs,
)
from tests.tokenization.test_tokenization import golden_texts


def run(proto, inputs):
    """Runs an ONNX model with ONNX Runtime."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_match_the_model(kind):
    model = make_random_model(MODELS[kind])
    proto = build_onnx_model(model)
    for inputs, expected in make_cases(model):
        outputs = run(proto, inputs)
        assert outputs
        for name, value in outputs.items():
            np.testing.assert_allclose(value, expected(name), atol=1e-4)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf", "relu", "tanh", "linear", None])
def test_activations(hidden_act):
    check_activation(hidden_act, lambda model, inputs: run(build_onnx_model(model), inputs))


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_pooling_ignores_padding(pooling):
    check_pooling(pooling, lambda model, inputs: run(build_onnx_model(model, pooling), inputs))


def test_custom_head_is_rejected():
    class CustomModel(BertModel.__base__):
        def __init__(self, config):
            super().__init__(config)
            self.bert = BertModel(config)

    with pytest.raises(UserError, match=r"CustomModel .*it has no method onnx_outputs"):
        build_onnx_model(CustomModel(CONFIG))


def test_tokenizer_json_ids_match(tmp_path):
    path = oracle.ROOT / "examples/small_bert/vocab.txt"
    tokenizer = FullTokenizer(str(path))
    exported = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(tokenizer, 16)))
    rows = (oracle.ROOT / "examples/reviews/dev.tsv").read_text().splitlines()
    texts = [row.replace("\t", " ") for row in rows]
    assert len(texts) > 50
    for text in texts:
        pieces = ["[CLS]", *tokenizer.tokenize(text)[:14], "[SEP]"]
        assert exported.encode(text).ids == tokenizer.convert_tokens_to_ids(pieces)
    pair = exported.encode("good film", "bad story")
    assert pair.type_ids == [0] * pair.tokens.index("[SEP]") + [0] + [1] * (
        len(pair) - pair.tokens.index("[SEP]") - 1
    )


def test_tokenizer_json_ids_differ_for_few_awkward_texts():
    """The documentation states the counts: 26 to 32 of 533."""
    tokenizer = FullTokenizer(str(oracle.golden("vocab/uncased.txt")))
    exported = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(tokenizer, 10**6)))
    strings = [convert_to_unicode(text) for text, _ in golden_texts()]
    strings = [text for text in strings if text.isascii() or text.isprintable()]
    differing = [
        text
        for text in strings
        if exported.encode(text, add_special_tokens=False).tokens != tokenizer.tokenize(text)
    ]
    assert len(strings) > 300
    assert len(differing) < 0.06 * len(strings)
    # Only the original treats special tokens in a text as text.
    assert all("[" in text for text in differing if text.isascii())


@pytest.fixture(scope="module")
def exported(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx") / "model"
    options = ExportOptions(
        model_dir=str(tiny.folder),
        export_dir=f"{folder}/",  # a slash at the end makes no difference
        format="onnx",
        pooling="mean",
        max_seq_length=24,
    )
    return export_model.run(options), options


def test_export_is_self_contained(tiny, exported):
    folder = Path(exported[0])
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoding = tokenizer.encode("a good film")
    values = (encoding.ids, encoding.attention_mask, encoding.type_ids)
    inputs = {name: np.array([value]) for name, value in zip(INPUTS, values, strict=True)}
    (actual,) = session.run(["pooler_output"], inputs)
    model = BertModel.from_checkpoint(tiny.checkpoint)
    np.testing.assert_allclose(actual, model(to_model_inputs(inputs))["pooled_output"], atol=1e-5)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    actual, expected = (
        (parent / "vocab.txt").read_text().split() for parent in (folder, tiny.folder)
    )
    assert actual == expected


def test_int8_is_smaller_and_close(tmp_path):
    config = BertConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    keras.utils.set_random_seed(3)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "bert_config.json").write_text(config.to_json_string())
    words = [f"word{number}" for number in range(495)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    variables = checkpoints.named_variables(BertModel(config))
    values = {name: variable.value for name, variable in variables.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    outputs = {}
    for precision in ("float32", "int8"):
        out = tmp_path / precision
        flags = {"format": "onnx", "pooling": "mean", "precision": precision}
        options = ExportOptions(model_dir=str(folder), export_dir=str(out), **flags)
        export_model.run(options)
        session = onnxruntime.InferenceSession(str(out / "model.onnx"))
        (outputs[precision],) = session.run(["sentence_embedding"], make_random_inputs((8, 12), 1))
    assert_close(*outputs.values())
    sizes = [(tmp_path / p / "model.onnx").stat().st_size for p in ("float32", "int8")]
    assert sizes[1] < 0.7 * sizes[0]


def test_export_only_replaces_earlier_exports(exported, tmp_path):
    folder, options = exported
    assert export_model.run(options) == folder == options.export_dir.rstrip("/")
    assert [path.name for path in Path(folder).parent.iterdir()] == ["model"]
    assert (Path(folder) / "model.onnx").stat().st_size > 1000
    # For instance a model exported by Optimum, with weights next to model.onnx.
    for name in ("model.onnx", "model.safetensors"):
        (tmp_path / name).write_text("not ours")
    with pytest.raises(UserError, match=r"not the folder of an export: it has model\.safetens"):
        export_model.run(dataclasses.replace(options, export_dir=str(tmp_path)))
    assert (tmp_path / "model.onnx").read_text() == "not ours"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"format": "onnx", "text_input": False}, "--text_input does not apply to --format=onnx"),
        ({"precision": "int8"}, "--precision does not apply to --format=saved_model"),
        ({"format": "litert", "form": "preprocessor"}, "needs --format=saved_model"),
    ],
)
def test_conflicting_flags_are_rejected(flags, message):
    with pytest.raises(UserError, match=message):
        ExportOptions(model_dir="in", export_dir="out", **flags).check()


def test_missing_package_raises_user_error(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r'package onnx .*pip install "bert_tf\[onnx\]"'):
        export_model.run(exported[1])
