"""Vectors as a sentence-transformers folder declares them, compared with its definition."""

import json
import shutil

import numpy as np
import pytest

from bert_tf import Predictor, SentenceEncoder, checkpoint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.sentence_transformers import declared_vectors
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands import convert_checkpoint, export_model
from bert_tf.commands.options import ConversionOptions, ExportOptions
from bert_tf.options import ExtractionOptions
from bert_tf.options.cli import parse
from bert_tf.tasks import extraction

TEXTS = ["the good film", "a story was not slow it was fast the plot"]
TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}
DENSE = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.fixture
def model(tiny_of_two_layers, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_of_two_layers.folder, folder)
    return folder


def declare(folder, config=CLS, modules=(), **texts):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER, POOLING, *modules]))
    texts.setdefault("max_seq_length", 20)
    (folder / "sentence_bert_config.json").write_text(json.dumps(texts))


def vectors(folder, **flags):
    predictor = Predictor(folder, script="extract_features", **flags)
    return np.stack([item.values for item in predictor(TEXTS)])


def expected(folder, name, length=20):
    """Computes a pooling of the last layer, as sentence-transformers defines it."""
    flags = {"pooling": "none", "layers": "-1", "max_seq_length": length}
    predictor = Predictor(folder, script="extract_features", **flags)
    tokens = [item.values[:, 0] for item in predictor(TEXTS)]
    pool = {"cls": lambda t: t[0], "mean": lambda t: t.mean(axis=0), "max": lambda t: t.max(axis=0)}
    return np.stack([np.concatenate([pool[n](t) for n in name.split()]) for t in tokens])


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CLS, "cls"),
        ({"word_embedding_dimension": 16}, "mean"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": True}, "cls mean"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "max mean"),
        ({"embedding_dimension": 16, "pooling_mode": "max", "include_prompt": True}, "max"),
        ({"pooling_mode": ["mean", "cls"]}, "cls mean"),
    ],
)
def test_declared_pooling_is_the_default(model, run_log, config, name):
    declare(model, config)
    actual = vectors(model)
    np.testing.assert_allclose(actual[:, 0], expected(model, name), atol=1e-5)
    assert "WARNING" not in run_log.text


@pytest.mark.parametrize("engine", ["tensorflow", "onnx"])
def test_normalization_and_length(model, engine):
    declare(model, {"pooling_mode": "mean"}, [NORMALIZE], max_seq_length=6)
    pooled = expected(model, "mean", length=6)
    normalized = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors(model, engine=engine)[:, 0], normalized, atol=1e-5)
    # Another pooling alone is that of version 1.0.
    unscaled = vectors(model, pooling="mean", layers="-1", max_seq_length=6)[:, 0]
    np.testing.assert_allclose(unscaled, pooled, atol=1e-5)


def test_length_of_the_tokenizer_or_of_the_positions(model):
    declare(model, max_seq_length=None)
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 24}))
    np.testing.assert_allclose(vectors(model)[:, 0], expected(model, "cls", 24), atol=1e-5)
    (model / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 6}))
    np.testing.assert_allclose(vectors(model)[:, 0], expected(model, "cls", 6), atol=1e-5)


def test_lower_case(model):
    declare(model, do_lower_case=True)
    flags = {"do_lower_case": False, "script": "extract_features"}
    texts = [text.upper() for text in TEXTS]
    actual = np.stack([item.values for item in Predictor(model, **flags)(texts)])
    np.testing.assert_allclose(actual[:, 0], expected(model, "cls"), atol=1e-5)


def test_script_with_defaults(model, tmp_path):
    declare(model)
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    flags = {"init_checkpoint": model, "input_file": tmp_path / "in.txt"}
    flags["output_file"] = tmp_path / "out.npz"
    argv = ["extract_features.py", *(f"--{name}={value}" for name, value in flags.items())]
    extraction.run(parse(ExtractionOptions, argv))
    actual = np.load(tmp_path / "out.npz")
    assert actual["layers"].tolist() == [-1]
    np.testing.assert_allclose(actual["features"][:, 0], expected(model, "cls"), atol=1e-5)


def test_transformer_in_a_subfolder(model, tmp_path):
    declare(model)
    old = tmp_path / "old"
    shutil.copytree(model, old / "0_Transformer")
    for name in ("modules.json", "1_Pooling"):
        shutil.move(old / "0_Transformer" / name, old / name)
    modules = [{**TRANSFORMER, "path": "0_Transformer"}, POOLING]
    (old / "modules.json").write_text(json.dumps(modules))
    actual = vectors(old / "0_Transformer")
    np.testing.assert_allclose(actual[:, 0], expected(model, "cls"), atol=1e-5)
    np.testing.assert_allclose(SentenceEncoder(str(old)).encode(TEXTS), actual[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("modules", "flags", "warning"),
    [
        ([], {"pooling": "mean", "layers": "-1"}, "declares pooling=cls, not --pooling=mean"),
        ([NORMALIZE], {"pooling": "cls", "layers": "-1"}, "declares pooling=cls, normalized, not"),
        ([DENSE], {"pooling": "cls", "layers": "-1"}, "declares the modules Transformer, Pool"),
        ([], {"layers": "-2"}, "is for --layers=-1, not -2"),
        ([], {"max_seq_length": 6}, "is for --max_seq_length=20, not 6"),
        ([], {"layers": "-1", "max_seq_length": 20}, None),
        ([], {"pooling": "cls", "layers": "-1"}, None),
        ([], {"pooling": "none", "layers": "-1"}, None),
    ],
)
def test_contradictory_flags_warn(model, run_log, modules, flags, warning):
    declare(model, modules=modules)
    if "pooling" in flags:
        flags = {"max_seq_length": 20, **flags}
    Predictor(model, script="extract_features", **flags)
    assert (warning in run_log.text) if warning else ("WARNING" not in run_log.text)


@pytest.mark.parametrize(
    ("config", "modules", "problem"),
    [
        (CLS, [DENSE], "declares the modules Transformer, Pooling, Dense, which is"),
        ({"pooling_mode": "lasttoken"}, [], "declares pooling lasttoken, which"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, [], "pooling_mode_mean_sqrt_len_tokens"),
        ({"pooling_mode_mean_tokens": False}, [], "declares a pooling without any mode"),
        (CLS, [NORMALIZE, POOLING], "the modules Transformer, Pooling, Normalize, Pooling"),
        (CLS, [{**DENSE, "type": "my.Own"}], "Transformer, Pooling, Own, which is not supported"),
    ],
)
def test_what_cannot_be_computed_is_refused(model, config, modules, problem):
    declare(model, config, modules)
    with pytest.raises(UserError, match=problem):
        vectors(model)


def test_damaged_declarations(model):
    declare(model)
    (model / "1_Pooling" / "config.json").unlink()
    with pytest.raises(UserError, match=r"1_Pooling/config\.json"):
        vectors(model)
    (model / "modules.json").write_text('["Transformer"]')
    with pytest.raises(UserError, match="no list of modules"):
        vectors(model)


def test_pooling_without_the_prompt(model, run_log):
    declare(model, {**CLS, "include_prompt": False})
    vectors(model)  # without prompts, they are the same
    settings = model / "config_sentence_transformers.json"
    settings.write_text('{"prompts": {"query": "query: ", "document": ""}}')
    with pytest.raises(UserError, match="include_prompt=false"):
        vectors(model)
    run_log.clear()
    vectors(model, pooling="cls", layers="-1", max_seq_length=20)
    assert "(include_prompt=false), not --pooling=cls" in run_log.text


def test_prompt_is_reported(model, run_log):
    declare(model)
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    vectors(model)
    assert "the texts get no prompt: write 'query: ' before each" in run_log.text


def test_pairs_are_reported_for_encoders_of_single_texts(model, run_log):
    declare(model)
    predictor = Predictor(model, script="extract_features")
    predictor([("a text", "another"), "a text"])
    predictor([("a text", "another")])
    message = "1 of 2 inputs has two texts, but the encoder compares single texts"
    assert run_log.text.count("single texts") == run_log.text.count(message) == 1


def test_exports_and_conversions_warn(model, tmp_path, run_log):
    declare(model, modules=[NORMALIZE])
    prompts = {"query": "query: ", "document": "", "passage": "text: "}
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    flags = {"model_dir": str(model), "export_dir": str(tmp_path / "out"), "format": "onnx"}
    export_model.run(ExportOptions(**flags, pooling="cls", max_seq_length=20))
    assert "declares pooling=cls, normalized, not --pooling=cls" in run_log.text
    convert_checkpoint.run(ConversionOptions(input=str(model), output=str(tmp_path / "copy.ckpt")))
    found = "declares pooling=cls, normalized, with the prompts {'query': 'query: ', 'passage'"
    assert found in run_log.text


@pytest.mark.parametrize("to", ["sentence_transformers", "original"])
@pytest.mark.parametrize("modules", [[], [NORMALIZE]])
def test_conversions_keep_the_declaration(model, modules, to, tmp_path, run_log):
    declare(model, modules=modules, do_lower_case=True)
    settings = '{"prompts": {"query": "query: "}, "similarity_fn_name": "dot"}'
    (model / "config_sentence_transformers.json").write_text(settings)
    declared = declared_vectors(RunFolder(str(model)))
    request = {"output": str(tmp_path / "copy"), "to": to}
    convert_checkpoint.run(ConversionOptions(input=str(model), **request))
    copy = declared_vectors(RunFolder(request["output"]))
    assert copy._replace(path="") == declared._replace(path="")
    expected, found = (SentenceEncoder(str(x)).encode(TEXTS) for x in (model, tmp_path / "copy"))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (tmp_path / "copy" / "2_Normalize").is_dir() == bool(modules)
    assert "The output does not" not in run_log.text


def test_conversions_declare_the_mean_by_default(model, tmp_path, run_log):
    request = {"output": str(tmp_path / "copy"), "to": "sentence_transformers"}
    convert_checkpoint.run(ConversionOptions(input=str(model), **request))
    assert "The vectors will be the mean of the tokens" in run_log.text
    copy = declared_vectors(RunFolder(request["output"]))
    assert (copy.pooling, copy.normalize) == ("mean", False)


def test_conversions_of_cross_encoders(model, tmp_path):
    prefix = str(model / "bert_model.ckpt")
    weights = dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))
    head = {"output_weights": np.ones((1, 16), np.float32), "output_bias": np.zeros(1, np.float32)}
    checkpoint.write(prefix, {**weights, **head})
    (model / "run.json").write_text('{"script": "run_ranking", "flags": {}}')
    to = {"to": "sentence_transformers"}
    copy = str(tmp_path / "copy")
    convert_checkpoint.run(ConversionOptions(input=str(model), output=copy, **to))
    assert not (tmp_path / "copy" / "modules.json").exists()
    for folder, reason in ((str(model), "run_ranking trained it"), (copy, "it is a CrossEncoder")):
        again = {"input": folder, "output": str(tmp_path / "again"), **to}
        with pytest.raises(UserError, match=f"no vectors of texts: {reason}"):
            convert_checkpoint.run(ConversionOptions(**again, head="encoder"))
        assert not (tmp_path / "again").exists()
    # Once more without flags: it stays a cross-encoder.
    convert_checkpoint.run(ConversionOptions(**again))
    assert not (tmp_path / "again" / "modules.json").exists()
    # As sentence-transformers 6 saves it.
    saved = {"modules.json": [TRANSFORMER], "sentence_bert_config.json": {"max_seq_length": 9}}
    saved["config_sentence_transformers.json"] = {"model_type": "CrossEncoder", "prompts": {}}
    for name, content in saved.items():
        (tmp_path / "copy" / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match="no vectors of texts: it is a CrossEncoder"):
        SentenceEncoder(copy).encode(TEXTS)
    convert_checkpoint.run(ConversionOptions(input=copy, output=str(tmp_path / "new"), **to))
    for name, content in saved.items():
        assert json.loads((tmp_path / "new" / name).read_text()) == content
    settings = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 9


def test_conversions_to_a_name_with_an_extension(model, tmp_path):
    request = {"output": str(tmp_path / "x.ckpt"), "to": "sentence_transformers"}
    with pytest.raises(UserError, match=r"does not fit .*: expected a folder"):
        convert_checkpoint.run(ConversionOptions(input=str(model), **request))


def test_conversions_refuse_unknown_modules(model, tmp_path):
    declare(model, modules=[DENSE])
    request = {"output": str(tmp_path / "copy"), "to": "sentence_transformers"}
    with pytest.raises(UserError, match=r"Dense, which is not supported\. Pass --to=hugging"):
        convert_checkpoint.run(ConversionOptions(input=str(model), **request))
    assert not (tmp_path / "copy").exists()


def test_folders_without_declaration_have_token_vectors(model, run_log):
    predictor = Predictor(model, script="extract_features", layers="-1", max_seq_length=12)
    assert predictor(TEXTS[0]).values.shape == (5, 1, 16)
    (model / "modules.json").write_text(json.dumps([TRANSFORMER]))
    assert Predictor(model, script="extract_features", layers="-1", max_seq_length=12)
    assert "WARNING" not in run_log.text
