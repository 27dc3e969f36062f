"""Comparison with transformers, if it is installed; it is not a dependency."""

import importlib.util
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_tf import checkpoint
from bert_tf.checkpoints.formats import find_source, heads
from bert_tf.checkpoints.formats.keras_files import build
from bert_tf.config import BertConfig
from bert_tf.tokenization import FullTokenizer
from tests.checkpoints.formats.conftest import NAMES, assert_same, convert_path, write_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("transformers") and importlib.util.find_spec("torch")),
        reason="transformers and torch are not installed",
    ),
]

ACTIVATIONS = ("gelu", "gelu_erf", "relu")
DTYPES = ("bfloat16", "float16")
TEXT = "The film was GOOD, not slów."
IDS = np.array([[2, 5, 6, 7, 3, 9, 10, 3], [2, 8, 9, 3, 0, 0, 0, 0]])
MASK = (IDS > 0).astype("int32")
SEGMENTS = np.array([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8])
POSITIONS = np.array([[1, 2], [1, 3]])
INPUTS = {"input_ids": IDS.tolist(), "attention_mask": MASK.tolist()}
INPUTS["token_type_ids"] = SEGMENTS.tolist()


def _run_worker(folder, jobs):
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).parent / "transformers_worker.py"
    result = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def transformers_results(tiny, models, tmp_path_factory):
    """The folder of exported models, and the results of transformers for them."""
    folder, jobs = tmp_path_factory.mktemp("transformers"), {}
    for name in NAMES:
        for activation in ACTIVATIONS:
            config = BertConfig.from_dict({**tiny.config.to_dict(), "hidden_act": activation})
            ours = write_model(folder / f"{name}_{activation}_ours", tiny, name, config)
            convert_path(ours, folder / f"{name}_{activation}", to="hugging_face", head=name)
            load = {"action": "load", "architecture": heads.registered()[name].architecture}
            jobs[f"{name}_{activation}"] = {**load, "inputs": INPUTS}
    jobs |= {dtype: {"action": "cast", "model": "encoder_gelu", "dtype": dtype} for dtype in DTYPES}
    config = {**tiny.config.to_dict(), "hidden_act": "gelu"}
    jobs["masked_lm"] = {"action": "make_masked_lm", "config": config}
    for lower in (True, False):
        flags = {"to": "hugging_face", "do_lower_case": lower}
        convert_path(models["encoder"], folder / f"lower_{lower}", **flags)
        jobs[f"lower_{lower}"] = {"action": "tokenize", "text": TEXT}
    convert_path(models["classification"], folder / "labels", to="hugging_face", labels="x,y,z")
    jobs["labels"] = {"action": "read_config"}
    return folder, _run_worker(folder, jobs)


def _compute_outputs(folder, name):
    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = build(heads.registered()[name], config, 3)
    assert checkpoint.restore(model, str(folder / "bert_model.ckpt")).new == ()
    inputs = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}
    outputs = model({**inputs, "masked_lm_positions": POSITIONS})
    return {key: np.asarray(value) for key, value in outputs.items() if "all_" not in key}


def _assert_outputs_match(name, ours, theirs):
    rows = np.arange(2)[:, None]
    if name == "pretraining":
        pairs = [
            (ours["masked_lm_logits"], theirs["prediction_logits"][rows, POSITIONS]),
            (ours["next_sentence_logits"], theirs["seq_relationship_logits"]),
        ]
    elif name == "span":
        pairs = [(ours[key], theirs[key]) for key in ("start_logits", "end_logits")]
    elif name == "encoder":
        pairs = [
            (ours["sequence_output"], theirs["last_hidden_state"]),
            (ours["pooled_output"], theirs["pooler_output"]),
        ]
    else:
        pairs = [(ours["logits"], theirs["logits"])]
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_exported_models_match_transformers(transformers_results, name, activation):
    folder, results = transformers_results
    # There are no missing, unexpected or mismatched keys.
    assert results[f"{name}_{activation}"] == {}
    theirs = np.load(folder / f"{name}_{activation}.npz")
    _assert_outputs_match(
        name, _compute_outputs(folder / f"{name}_{activation}_ours", name), theirs
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_models_saved_by_transformers_are_read(transformers_results, name, activation, tmp_path):
    folder, _ = transformers_results
    saved = folder / f"{name}_{activation}_saved"
    assert (saved / "model.safetensors.index.json").exists()
    convert_path(saved, tmp_path / "x", to="original")
    if heads.registered()[name].has_pooler:
        expected = folder / f"{name}_{activation}_ours" / "bert_model.ckpt"
        assert_same(str(expected), str(tmp_path / "x" / "bert_model.ckpt"))
    theirs = np.load(folder / f"{name}_{activation}.npz")
    _assert_outputs_match(name, _compute_outputs(tmp_path / "x", name), theirs)


def test_masked_lm_model_is_read(transformers_results, tiny, tmp_path):
    folder, _ = transformers_results
    source = find_source(str(folder / "masked_lm"))
    convert_path(folder / "masked_lm", tmp_path / "x", to="original")
    state = np.load(folder / "masked_lm.npz")
    vocab = str(tiny.folder / "vocab.txt")
    convert_path(tmp_path / "x", tmp_path / "reexported", to="hugging_face", vocab_file=vocab)
    jobs = {"reexported": {"action": "load", "architecture": "BertForMaskedLM", "inputs": INPUTS}}
    assert _run_worker(tmp_path, jobs) == {"reexported": {}}
    ((_, embeddings),) = source.read(["bert/embeddings/word_embeddings"])
    expected = state["bert.embeddings.word_embeddings.weight"]
    assert embeddings.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_weights_are_read_exactly(transformers_results, dtype):
    folder, _ = transformers_results
    source = find_source(str(folder / f"{dtype}_saved"))
    assert {stored for _, stored in source.variables().values()} == {dtype}
    ((_, embeddings),) = source.read(["bert/embeddings/word_embeddings"])
    assert embeddings.tobytes() == np.load(folder / f"{dtype}.npy").tobytes()


@pytest.mark.parametrize("lower", [True, False])
def test_tokenizers_match_transformers(transformers_results, models, lower):
    folder, results = transformers_results
    ours = FullTokenizer(str(models["encoder"] / "vocab.txt"), do_lower_case=lower)
    assert results[f"lower_{lower}"] == [ours.tokenize(TEXT), 24]
    # transformers saves the vocabulary in tokenizer.json.
    saved = folder / f"lower_{lower}_saved"
    for name in ("model.safetensors", "config.json"):
        (saved / name).write_bytes((folder / f"lower_{lower}" / name).read_bytes())
    assert not (saved / "vocab.txt").exists()
    source = find_source(str(saved))
    assert source.do_lower_case is lower
    assert Path(source.vocab_file).read_text() == (models["encoder"] / "vocab.txt").read_text()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("accents", [None, True, False])
def test_added_tokens_have_the_ids_of_transformers(models, tiny, tmp_path, lower, accents):
    vocab = models["encoder"] / "vocab.txt"
    tokens = [{"content": text, "normalized": True} for text in ("filmX", "ilm", "new york", "c++")]
    tokens += [{"content": "slowest", "normalized": True}, {"content": "Plöt", "normalized": True}]
    tokens += [{"content": text, "special": True, "normalized": False} for text in ("[E1]", "<é>")]
    tokens += [{"content": "<m>", "lstrip": True, "rstrip": True, "normalized": False}]
    parts = "filmX|FILM|ilm|New York|C++|slow|Slow|plo\u0308t|PLÖT|[E1]|[e1]|<é>|<É>| <m> | | |-|x"
    parts = [*parts.split("|"), "_", "字", "\t", "the", "good"]
    rng = random.Random(5)
    texts = ["".join(rng.choices(parts, k=rng.randrange(8))) for _ in range(500)]
    settings = {"vocab": str(vocab), "do_lower_case": lower, "strip_accents": accents}
    job = {"action": "add_tokens", "tokenizer": settings, "tokens": tokens, "texts": texts}
    expected = _run_worker(tmp_path, {"x": job})["x"]
    size = len(vocab.read_text().splitlines())
    config = BertConfig.from_dict({**tiny.config.to_dict(), "vocab_size": size + len(tokens)})
    write_model(tmp_path / "ours", tiny, "encoder", config)
    convert_path(tmp_path / "ours", tmp_path / "theirs", to="hugging_face")
    for name in ("model.safetensors", "config.json"):
        shutil.copy(tmp_path / "theirs" / name, tmp_path / "x")
    source = find_source(str(tmp_path / "x"))
    strip = {"true": True, "false": False}.get(source.tokenizer_settings.get("strip_accents"))
    special = source.tokenizer_settings["special_tokens"]
    tokenizer = FullTokenizer(source.vocab_file, source.do_lower_case, strip, special)
    found = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
    assert found == expected


def test_labels_and_settings_are_exported(transformers_results):
    _, results = transformers_results
    assert results["labels"] == [{"0": "x", "1": "y", "2": "z"}, 3, 0.1, 1e-12]
