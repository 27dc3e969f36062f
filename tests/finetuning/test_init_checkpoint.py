"""--init_checkpoint: formats, and config, vocabulary and casing read from files next to it."""

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import ClassifierOptions, ConversionOptions, ExtractionOptions
from bert_tf.tasks import classification, extraction
from tests.tasks.classification.test_task import options

CASED = {"script": "run_classifier", "flags": {"do_lower_case": False}}


@pytest.fixture(scope="module")
def model_sources(tiny, tmp_path_factory):
    """The same encoder in every supported format, one folder each."""
    folder = tmp_path_factory.mktemp("sources")
    original = folder / "original"
    original.mkdir()
    for path in tiny.folder.iterdir():
        if path.is_file():
            shutil.copy(path, original)
    with zipfile.ZipFile(folder / "release.zip", "w") as archive:
        for path in original.iterdir():
            archive.write(path, f"release/{path.name}")
    source = find_source(str(original))
    convert(source, ConversionOptions(output=str(folder / "hugging_face"), to="hugging_face"))
    (folder / "keras").mkdir()
    convert(source, ConversionOptions(output=str(folder / "keras" / "model.keras")))
    shutil.copy(original / "vocab.txt", folder / "keras")
    return {
        "prefix": original / "bert_model.ckpt",
        "folder": original,
        "zip": folder / "release.zip",
        "hugging_face": folder / "hugging_face",
        "keras": folder / "keras" / "model.keras",
    }


def _write_run(folder, model_folder):
    """Writes the folder of a run that was trained on cased text."""
    folder.mkdir(parents=True)
    for path in model_folder.glob("bert_model.ckpt.*"):
        shutil.copy(path, folder / path.name.replace("bert_model.ckpt", "model.ckpt-9"))
    (folder / "run.json").write_text(json.dumps(CASED))


def _extract_features(tmp_path, init_checkpoint, **flags):
    texts = tmp_path / "texts.txt"
    texts.write_text("the good film\nit was not slow\n")
    files = {"input_file": str(texts), "output_file": str(tmp_path / "x.npz")}
    flags |= {"output_format": "npz", "pooling": "mean", "layers": "-1", "max_seq_length": 16}
    extraction.run(ExtractionOptions(**files, **flags, init_checkpoint=str(init_checkpoint)))
    with np.load(tmp_path / "x.npz") as arrays:
        return arrays["features"]


@pytest.mark.parametrize("kind", ["prefix", "folder", "zip", "hugging_face", "keras"])
def test_all_formats_give_the_same_features(tiny, tmp_path, model_sources, kind):
    model_files = {name: tiny.flags[name] for name in ("bert_config_file", "vocab_file")}
    expected = _extract_features(tmp_path, tiny.checkpoint, **model_files)
    np.testing.assert_array_equal(_extract_features(tmp_path, model_sources[kind]), expected)


@pytest.mark.slow
def test_training_from_a_hugging_face_folder(tiny, tmp_path, model_sources):
    flags = {"do_train": True, "do_eval": True, "num_train_epochs": 1.0}
    expected = classification.run(options(tiny, tmp_path, **flags)).metrics
    flags |= {"init_checkpoint": str(model_sources["hugging_face"]), "bert_config_file": None}
    flags |= {"vocab_file": None, "output_dir": str(tmp_path / "hugging_face")}
    metrics = classification.run(options(tiny, tmp_path, **flags)).metrics
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-6)
    for name in ("bert_config.json", "vocab.txt"):
        assert (tmp_path / "hugging_face" / name).exists()


def test_casing_is_read_from_the_tokenizer_config(tiny, tmp_path, model_sources):
    folder = shutil.copytree(model_sources["hugging_face"], tmp_path / "bert-base-cased")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    for changes in ({}, {"bert_config_file": None, "vocab_file": None}):
        run = options(tiny, tmp_path, do_train=True, init_checkpoint=str(folder), **changes)
        with pytest.raises(UserError, match=r"on cased text. Pass --do_lower_case=false"):
            classification.run(run)
    assert not (tmp_path / "out").exists()


def test_casing_is_read_from_the_training_run(tiny, tmp_path, model_sources):
    trained = shutil.copytree(model_sources["folder"], tmp_path / "trained")
    (trained / "run.json").write_text(json.dumps(CASED))
    for path in (trained, trained / "bert_model.ckpt"):
        run = options(tiny, tmp_path, do_predict=True, init_checkpoint=str(path))
        with pytest.raises(UserError, match=r"--init_checkpoint=.* on cased text"):
            classification.run(run)
    # The casing of the resumed run takes precedence over that of --init_checkpoint.
    _write_run(tmp_path / "out", model_sources["folder"])
    run = options(tiny, tmp_path, do_predict=True)
    with pytest.raises(UserError, match=r"--output_dir=.* on cased text"):
        classification.run(run)
    suffixes = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert suffixes == {".data-00000-of-00001", ".index", ".json"}


def test_tokenizer_settings_are_those_of_the_model(tiny, tmp_path, model_sources, run_log):
    flags = {"special_tokens": "film,good", "strip_accents": "false", "pretokenized": True}
    trained = shutil.copytree(model_sources["folder"], tmp_path / "trained")
    run_json = {"script": "run_classifier", "flags": flags}
    (trained / "run.json").write_text(json.dumps(run_json))
    run = options(tiny, tmp_path, do_predict=True, init_checkpoint=str(trained))
    run = read_model_files(run).options
    assert (run.special_tokens, run.strip_accents) == ("film,good", "false")
    # What the texts are is not a property of the model.
    assert not run.pretokenized
    run_log.clear()
    run = dataclasses.replace(run, strip_accents="true", special_tokens="")
    run = read_model_files(run).options
    assert (run.special_tokens, run.strip_accents) == ("", "true")
    assert "the model needs --strip_accents=false, not true" in run_log.text
    tokenizer = read_model_files(dataclasses.replace(run, pretokenized=True)).tokenizer
    assert tokenizer.tokenize("a, Good film") == ["[UNK]", "[UNK]", "film"]


def test_casing_of_several_runs_is_checked(tiny, tmp_path, model_sources):
    _write_run(tmp_path / "out" / "run_2", model_sources["folder"])
    run = options(tiny, tmp_path, do_train=True, do_eval=True, num_runs=2)
    with pytest.raises(UserError, match=r"--output_dir=.* on cased text"):
        classification.run(run)


@pytest.mark.parametrize("text", ['{"script": ["a"]}', '{"flags": 1}'])
def test_run_json_of_another_program_is_ignored(tmp_path, model_sources, text):
    folder = shutil.copytree(model_sources["folder"], tmp_path / "model")
    (folder / "run.json").write_text(text)
    assert find_source(str(folder)).do_lower_case is None


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_run_json_is_an_error(tmp_path, model_sources, text):
    folder = shutil.copytree(model_sources["folder"], tmp_path / "model")
    (folder / "run.json").write_text(text)
    with pytest.raises(UserError, match=r"model/run\.json.*(invalid JSON|a JSON object)"):
        find_source(str(folder))


def test_init_checkpoint_is_checked_before_data(tiny, tmp_path):
    run = options(tiny, tmp_path, do_train=True, init_checkpoint=str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="nothing"):
        classification.run(dataclasses.replace(run, data_dir=str(tmp_path / "nowhere")))


def test_lower_casing_with_a_cased_vocabulary_warns(tiny, tmp_path, run_log):
    tokens = Path(tiny.flags["vocab_file"]).read_text(encoding="utf-8").split()
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*tokens[:-3], "The", "Film", "Good"]), encoding="utf-8")
    for do_lower_case in (True, False):
        run_log.clear()
        flags = {"vocab_file": str(vocab), "do_lower_case": do_lower_case}
        read_model_files(options(tiny, tmp_path, **flags))
        assert ("For a cased model, set do_lower_case to false" in run_log.text) == do_lower_case


def test_missing_file_errors_name_the_flags(tiny, tmp_path, model_sources):
    (tmp_path / "weights_only").mkdir()
    for path in model_sources["folder"].glob("bert_model.ckpt*"):
        shutil.copy(path, tmp_path / "weights_only")
    flags = {"init_checkpoint": str(tmp_path / "weights_only"), "vocab_file": None}
    weights_only = options(tiny, tmp_path, do_train=True, **flags)
    with pytest.raises(UserError, match="Pass --vocab_file: none was found with --init"):
        classification.run(weights_only)
    without_model = ClassifierOptions(do_train=True, task_name="MRPC", data_dir="x", output_dir="y")
    with pytest.raises(UserError, match=r"required flags.*--init_checkpoint=FOLDER"):
        without_model.check()
    weights = tmp_path / "pytorch_model.bin"
    weights.write_bytes(b"\x80\x02}q\x00.")
    unreadable = options(tiny, tmp_path, do_train=True, init_checkpoint=str(weights))
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        classification.run(unreadable)
