"""File names in flags: lists, globs, directories and output paths."""

import os
import subprocess
import sys

import pytest

from bert_tf.base import file_names
from bert_tf.base.errors import UserError
from tests.oracle import ROOT


def test_lists_globs_and_directories(tmp_path):
    for name in ("b.txt", "a.txt", "deep/c.txt", "deep/_d", "deep/e.json", "f.tfrecord.tmp", "[g]"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    folder = str(tmp_path)
    actual = file_names.expand(f"{folder}/b.txt, {folder}/*.txt,{folder}/deep,{folder}/[g]")
    expected = ["b.txt", "a.txt", "b.txt", "deep/c.txt", "[g]"]
    assert actual == [os.path.join(folder, name) for name in expected]
    all_files = ["[g]", "a.txt", "b.txt", "deep/c.txt"]
    assert file_names.expand(folder) == [os.path.join(folder, name) for name in all_files]
    assert file_names.expand(" ,") == []


def test_glob_skips_metadata_files(tmp_path):
    for name in ("a.tfrecord", "a.tfrecord.json", "b.tfrecord.tmp", "_SUCCESS"):
        (tmp_path / name).write_text("")
    (tmp_path / "c.tfrecord.parts").mkdir()
    folder = str(tmp_path)
    assert file_names.expand(f"{folder}/*") == [f"{folder}/a.tfrecord"]
    for pattern in (f"{folder}/a.tfrecord.json", f"{folder}/*.json"):
        assert file_names.expand(pattern) == [f"{folder}/a.tfrecord.json"]


def test_file_listed_twice_warns(tmp_path, caplog):
    path = tmp_path / "a.txt"
    path.write_text("a")
    assert file_names.expand(f"{path},{tmp_path}") == [str(path)] * 2
    assert f"lists {path} more than once" in caplog.text


def test_no_matching_file_is_rejected(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(UserError, match=r"No file matches .*\*\.csv .* has: a\.txt"):
        file_names.expand(f"{tmp_path}/*.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"No file matches .*empty/\* \(.*empty has: nothing\)"):
        file_names.expand(f"{tmp_path}/empty")


def test_output_path_must_be_writable(tmp_path):
    file_names.require_writable(str(tmp_path / "out.tfrecord"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="is a folder"):
        file_names.require_writable(str(tmp_path))
    with pytest.raises(UserError, match=r"not be compressed: pass .*out.tfrecord"):
        file_names.require_writable(str(tmp_path / "out.tfrecord.gz"))
    with pytest.raises(UserError, match=r"there is no folder .*missing"):
        file_names.require_writable(str(tmp_path / "missing" / "out.tfrecord"))


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
def test_redirected_standard_output_is_refused(tmp_path):
    """Writing replaces the file, which would lose its content and the shell's later output."""
    call = "from bert_tf.base.file_names import *; require_writable('/dev/stdout')"
    command = [sys.executable, "-c", call]
    with open(tmp_path / "out", "w") as file:
        result = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True)
    assert "/dev/stdout is redirected to a file" in result.stderr
    subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)


def test_symlinked_output_path_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "missing" / "out.tfrecord")
    with pytest.raises(UserError, match=r"link: there is no folder .*missing"):
        file_names.require_writable(str(tmp_path / "link"))
    (tmp_path / "missing").mkdir()
    file_names.require_writable(str(tmp_path / "link"))
    assert not list((tmp_path / "missing").iterdir())


def test_output_must_differ_from_input(tmp_path):
    (tmp_path / "text").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    text, link, other = (str(tmp_path / name) for name in ("text", "link", "other"))
    file_names.require_distinct([other], [text, link])
    for outputs in ([text], [link], [other, other]):
        with pytest.raises(UserError, match="also an input, or listed twice"):
            file_names.require_distinct(outputs, [text])


def test_remote_globs():
    with pytest.raises(UserError, match="nowhere://x"):
        file_names.expand("nowhere://x/*.txt")
    with pytest.raises(UserError, match="No file matches ram://nothing/"):
        file_names.expand("ram://nothing/*.txt")
