"""Detecting checkpoint formats and their companion files."""

import pytest

from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.errors import UserError
from bert_tf.options import ConversionOptions
from tests.checkpoints.formats.conftest import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_kinds_and_companion_files_are_detected(models, name, tmp_path):
    for to, output in (("hugging_face", "x"), ("keras", "x.keras")):
        convert(
            find_source(str(models[name])),
            ConversionOptions(output=str(tmp_path / output), to=to, head=name),
        )
    original = find_source(str(models[name]))
    hugging_face, keras_file = (
        find_source(str(tmp_path / "x")),
        find_source(str(tmp_path / "x.keras")),
    )
    assert [source.kind for source in (original, hugging_face, keras_file)] == [
        "original",
        "hugging_face",
        "keras",
    ]
    assert hugging_face.head == keras_file.head == name
    assert original.shapes() == hugging_face.shapes() == keras_file.shapes()
    assert original.config() == hugging_face.config() == keras_file.config()
    assert original.vocab_file == str(models[name] / "vocab.txt")
    assert hugging_face.vocab_file == str(tmp_path / "x" / "vocab.txt")
    assert hugging_face.config_file == str(tmp_path / "x" / "config.json")
    assert keras_file.config_file is None
    file = find_source(str(tmp_path / "x" / "model.safetensors"))
    assert (file.kind, file.shapes()) == ("hugging_face", hugging_face.shapes())
    values = [dict(source.read(source.shapes())) for source in (original, hugging_face, keras_file)]
    for key, value in values[0].items():
        assert value.tobytes() == values[1][key].tobytes() == values[2][key].tobytes()


def test_zip_files_must_be_unpacked(tmp_path):
    (tmp_path / "uncased_L-2_H-128_A-2.zip").write_bytes(b"")
    with pytest.raises(UserError, match=r"A-2\.zip is a zip file: unpack it, and pass the folder"):
        find_source(str(tmp_path / "uncased_L-2_H-128_A-2.zip"))


def test_directory_must_contain_one_model(models, tmp_path):
    convert(
        find_source(str(models["encoder"])),
        ConversionOptions(output=str(tmp_path / "x"), to="hugging_face"),
    )
    for path in models["encoder"].glob("bert_model*"):
        (tmp_path / "x" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(
        UserError, match=r"contains two models, model\.safetensors and bert_model\.ckpt"
    ):
        find_source(str(tmp_path / "x"))
    assert find_source(str(tmp_path / "x" / "bert_model.ckpt")).kind == "original"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains no checkpoint"):
        find_source(str(tmp_path / "empty"))
