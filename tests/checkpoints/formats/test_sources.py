"""Detecting checkpoint formats, their companion files, and zip archives."""

import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from tests.checkpoints.formats.conftest import NAMES, assert_same, convert_path


def _write_zip(path, folder, prefix, extra_members=()):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{prefix}{file.name}")
        for member, content in extra_members:
            archive.writestr(member, content)
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_kinds_and_companion_files_are_detected(models, name, tmp_path):
    for to, output in (("hugging_face", "x"), ("keras", "x.keras")):
        convert_path(models[name], tmp_path / output, to=to, head=name)
    paths = (models[name], tmp_path / "x", tmp_path / "x.keras")
    sources = original, hugging_face, keras_file = [find_source(str(path)) for path in paths]
    assert [source.kind for source in sources] == ["original", "hugging_face", "keras"]
    assert hugging_face.head.name == keras_file.head.name == name
    assert original.shapes() == hugging_face.shapes() == keras_file.shapes()
    assert original.config() == hugging_face.config() == keras_file.config()
    assert original.vocab_file == str(models[name] / "vocab.txt")
    assert hugging_face.vocab_file == str(tmp_path / "x" / "vocab.txt")
    assert hugging_face.config_file == str(tmp_path / "x" / "config.json")
    assert keras_file.config_file is None
    file = find_source(str(tmp_path / "x" / "model.safetensors"))
    assert (file.kind, file.shapes()) == ("hugging_face", hugging_face.shapes())
    values = [dict(source.read(source.shapes())) for source in sources]
    for key, value in values[0].items():
        assert value.tobytes() == values[1][key].tobytes() == values[2][key].tobytes()


@pytest.mark.parametrize("prefix", ["uncased_L-12_H-768_A-12/", "cased_L-12_H-768_A-12/", ""])
def test_release_zip_is_unpacked(models, prefix, tmp_path):
    extra = [(f"__MACOSX/{prefix}._bert_model.ckpt.index", "x")]
    path = _write_zip(tmp_path / "x.zip", models["pretraining"], prefix, extra)
    source = find_source(path)
    assert source.kind == "original"
    assert source.do_lower_case is {"u": True, "c": False, "": None}[prefix[:1]]
    # The archive is unpacked only once.
    assert find_source(path).path == source.path
    convert_path(path, tmp_path / "out", to="original")
    assert_same(
        str(models["pretraining"] / "bert_model.ckpt"), str(tmp_path / "out" / "bert_model.ckpt")
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.zip"]


@pytest.mark.parametrize("name", ["model/../../vocab.txt", "/vocab.txt", "..\\vocab.txt"])
def test_zip_paths_do_not_leave_the_folder(models, name, tmp_path):
    path = _write_zip(tmp_path / "x.zip", models["encoder"], "model/", [(name, "x")])
    source = find_source(path)
    assert Path(source.vocab_file).read_text() == (models["encoder"] / "vocab.txt").read_text()
    folder = Path(source.path).parent
    assert {path.name for path in folder.parent.iterdir()} == {"model"}
    assert not any(path.is_dir() for path in folder.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_zip_links_are_not_followed(models, tmp_path):
    link = zipfile.ZipInfo("model/other.ckpt.meta")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = _write_zip(tmp_path / "x.zip", models["encoder"], "model/", [(link, "/etc/passwd")])
    unpacked = Path(find_source(path).path).with_name("other.ckpt.meta")
    assert not unpacked.is_symlink()
    assert unpacked.read_text() == "/etc/passwd"


def test_zip_bomb_is_rejected(models, tmp_path, monkeypatch):
    extra = [("model/bert_model.ckpt.meta", bytes(10_000_000))]
    path = _write_zip(tmp_path / "x.zip", models["encoder"], "model/", extra)
    find_source(path)
    # Copy the archive: one that has been unpacked is not checked again.
    copied = str(shutil.copy(path, tmp_path / "y.zip"))
    monkeypatch.setattr("bert_tf.checkpoints.formats.detection._ALWAYS_ALLOWED_BYTES", 1000)
    with pytest.raises(UserError, match=r"would unpack to 10,\d+,\d+"):
        find_source(copied)


def test_zip_must_contain_one_checkpoint(models, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.txt").write_text("")
    with pytest.raises(UserError, match=r"not one original BERT checkpoint.*readme\.txt"):
        find_source(_write_zip(tmp_path / "x.zip", tmp_path / "empty", ""))
    extra = [("other/bert_model.ckpt.index", "")]
    with pytest.raises(UserError, match=r"not one .*other/bert_model\.ckpt\.index"):
        find_source(_write_zip(tmp_path / "y.zip", models["encoder"], "model/", extra))


def test_truncated_zip_is_rejected(models, tmp_path):
    path = _write_zip(tmp_path / "x.zip", models["encoder"], "model/")
    content = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(content[: int(0.9 * len(content))])
    with pytest.raises(UserError, match="cannot be unpacked"):
        find_source(path)


def test_directory_must_contain_one_model(models, tmp_path):
    convert_path(models["encoder"], tmp_path / "x", to="hugging_face")
    for path in models["encoder"].glob("bert_model*"):
        (tmp_path / "x" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"two models, model\.safetensors and bert_model\.ckpt"):
        find_source(str(tmp_path / "x"))
    assert find_source(str(tmp_path / "x" / "bert_model.ckpt")).kind == "original"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains no checkpoint"):
        find_source(str(tmp_path / "empty"))
