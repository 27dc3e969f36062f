"""File access: lines as in the TensorFlow file API, atomic writes, pipes and devices."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import tokenization
from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from tests.oracle import ROOT
from tests.processes import run_python


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab\n\r\u2028\x85\t é\x0b"), max_size=20))
def test_lines_match_the_tensorflow_file_api(tmp_path_factory, text):
    path = str(tmp_path_factory.mktemp("lines") / "file.txt")
    with open(path, "wb") as file:
        file.write(text.encode())
    with tf.io.gfile.GFile(path, "r") as file:
        expected = [line.rstrip("\n") for line in iter(file.readline, "")]
    assert list(files.read_lines(path)) == expected


def test_invalid_utf8_error_names_the_line(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"train\.tsv:2: the file is not UTF-8 \(byte 0xe9 at pos"):
        list(files.read_lines(str(path)))
    path.write_bytes("é".encode("utf-16"))
    with pytest.raises(UserError, match="iconv -f utf-16 -t utf-8"):
        list(files.read_lines(str(path)))


def test_missing_file_error_lists_existing_files(tmp_path):
    (tmp_path / "dev.tsv").write_text("")
    with pytest.raises(UserError, match=r"No such file: .*train\.tsv .*has: dev\.tsv"):
        files.open_binary(str(tmp_path / "train.tsv"))
    with pytest.raises(UserError, match=f"the folder {tmp_path} has: dev.tsv"):
        files.open_binary(str(tmp_path / "no" / "such" / "folder.tsv"))
    with pytest.raises(UserError, match="is a folder"):
        files.open_binary(str(tmp_path))
    (tmp_path / "test.tsv").symlink_to("moved.tsv")
    with pytest.raises(UserError, match=r"test\.tsv \(it links to moved\.tsv, which does"):
        files.open_binary(str(tmp_path / "test.tsv"))


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_file_size_limits(tmp_path):
    with pytest.raises(UserError, match=r"/dev/zero:1: the line has more than 128 MB"):
        next(files.read_lines("/dev/zero"))
    for read in (files.read_text, tokenization.load_vocab, BertConfig.from_json_file):
        with pytest.raises(UserError, match="/dev/zero must be a file, but is a pipe"):
            read("/dev/zero")
    large = tmp_path / "vocab.txt"
    with open(large, "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match=r"vocab\.txt has more than 128 MB"):
        tokenization.load_vocab(str(large))
    large.write_text("ü" * (1 << 20) + "\nb")
    assert [len(line) for line in files.read_lines(str(large))] == [1 << 20, 1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_text_is_read_from_a_pipe(tmp_path):
    pipe = str(tmp_path / "texts")
    os.mkfifo(pipe)
    writer = threading.Thread(target=Path(pipe).write_text, args=("a\nb\n",))
    writer.start()
    assert list(files.read_lines(pipe)) == ["a", "b"]
    writer.join()


def test_failed_write_keeps_the_old_file(tmp_path):
    path = str(tmp_path / "out.txt")
    files.write_text(path, "old\r\nfile")
    assert (tmp_path / "out.txt").read_bytes() == b"old\r\nfile"
    with pytest.raises(RuntimeError, match="stopped"):
        _fail_halfway(path)
    assert (tmp_path / "out.txt").read_bytes() == b"old\r\nfile"
    assert os.listdir(tmp_path) == ["out.txt"]


def _fail_halfway(path):
    with files.atomic_write(path) as temporary, open(temporary, "w") as file:
        file.write("half")
        raise RuntimeError("stopped")


def test_unwritable_paths_raise_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write"):
        files.write_text(str(tmp_path / "file" / "x.txt"), "")
    with pytest.raises(UserError, match="Cannot create the folder"):
        files.make_dirs(str(tmp_path / "file" / "folder"))


def test_unsupported_file_system_raises_user_error():
    for action in (files.exists, files.open_binary, files.make_dirs):
        with pytest.raises(UserError, match="nowhere://x/y"):
            action("nowhere://x/y")
    with pytest.raises(UserError, match="Cannot write nowhere://x/y"):
        files.write_text("nowhere://x/y", "")


@pytest.mark.parametrize("path", ["https://a.org/b.zip", "hf://bert-base-cased"])
def test_web_addresses_are_rejected(path):
    for action in (files.exists, files.is_dir, files.read_text, files.make_dirs):
        with pytest.raises(UserError, match=f"^{path} is an address"):
            action(path)


def test_tensorflow_is_imported_without_its_log():
    code = "from bert_tf.base import files; files.make_dirs('ram://a'); files.exists('s3://a')"
    stderr = run_python("-c", code).stderr
    assert "bert_tf.base.errors.UserError: Cannot look for s3://a" in stderr
    assert "I0000" not in stderr


def test_remote_file_systems_use_tensorflow():
    path = "ram://folder/file.txt"
    files.make_dirs("ram://folder")
    files.write_text(path, "a\nb\n")
    assert files.exists(path)
    assert list(files.read_lines(path)) == ["a", "b"]
    assert "file.txt" in files.list_dir("ram://folder")
    files.remove(path)
    assert not files.exists(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        ("| head -c 3", 0, ""),
        ("> /dev/full", 1, "Cannot write to the standard output: No space left on device"),
        ("", 0, ""),
    ],
)
def test_stdout_errors(redirection, code, message):
    """A closed pipe is not an error, a full disk is; the write is not retried at exit."""
    script = (
        "import sys; from bert_tf.base import errors, signals\n"
        "try:\n"
        "    with signals.standard_output() as file:\n"
        "        for _ in range(50): file.write(b'bytes' * 1000)\n"
        "except errors.UserError as error: sys.exit(str(error))"
    )
    command = f'set -o pipefail; {sys.executable} -c "$SCRIPT" {redirection}'
    result = subprocess.run(
        ["bash", "-c", command], env={"SCRIPT": script}, cwd=ROOT, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr.strip()) == (code, message)
    expected = {"": "bytes" * 50_000, "| head -c 3": "byt"}
    assert result.stdout == expected.get(redirection, "")


def test_last_writer_wins(tmp_path):
    path = str(tmp_path / "out.txt")
    with files.atomic_write(path) as first_path, open(first_path, "w") as first:
        first.write("first, ")
        first.flush()
        with files.atomic_write(path) as second_path, open(second_path, "w") as second:
            second.write("second")
        assert (tmp_path / "out.txt").read_text() == "second"
        first.write("and longer")
    assert (tmp_path / "out.txt").read_text() == "first, and longer"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_what_killed_processes_left_is_removed(tmp_path):
    folder = tmp_path / "out[1]"
    folder.mkdir()
    for name in (files.temporary_name(str(folder / "out.txt")), folder / "notes.tmp"):
        Path(name).write_text("half")
    files.remove_temporary(str(folder))
    assert os.listdir(folder) == ["notes.tmp"]


@pytest.mark.parametrize("platform", ["linux", "other"])
def test_replacing_a_folder_leaves_a_complete_one_at_any_time(tmp_path, monkeypatch, platform):
    monkeypatch.setattr(files.sys, "platform", platform)
    path, new = str(tmp_path / "model"), str(tmp_path / "model.tmp")
    read = lambda folder: {p.name: p.read_text() for p in Path(folder).iterdir()}  # noqa: E731
    seen, replace = [], files._replace

    def watch(*paths):
        seen.append([read(p) for p in tmp_path.iterdir()])
        replace(*paths)
        seen.append([read(p) for p in tmp_path.iterdir()])

    monkeypatch.setattr(files, "_replace", watch)
    for version in ("1", "2", "3"):
        with files.temporary_folder_at(new):
            for name in ("a", "b"):
                Path(new, name).write_text(version)
            files.replace_folder(new, path)
        assert read(path) == {"a": version, "b": version}
        assert os.listdir(tmp_path) == ["model"]
    for folders in seen:
        assert any(x == {"a": x.get("a"), "b": x.get("a")} for x in folders)
    # Linux exchanges the folders in one step.
    assert len(seen) == {"linux": 2, "other": 10}[platform]


def test_symlink_is_followed(tmp_path):
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "out.txt", tmp_path / "link"
    link.symlink_to(target)
    for text in ("new target", "existing target"):
        files.write_text(str(link), text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert sorted(os.listdir(tmp_path) + os.listdir(target.parent)) == ["link", "out.txt", "store"]


def _write_lines(path):
    with files.atomic_write(path) as name, tf.io.gfile.GFile(name, "w") as file:
        for _ in range(20_000):
            file.write("a line\n")


def _write_records(path):
    with files.atomic_write(path) as name, tf.io.TFRecordWriter(name) as writer:
        for _ in range(20_000):
            writer.write(b"a record")


WRITERS = {
    "text": lambda path: files.write_text(path, "a line\n" * 20_000),
    "lines": _write_lines,
    "records": _write_records,
    "concatenation": lambda path: files.concatenate([__file__, __file__], path),
}


@contextlib.contextmanager
def reader_of(pipe, copy):
    """Creates a pipe and copies its data to a file in a subprocess, which is killed on failure."""
    os.mkfifo(pipe)
    process = subprocess.Popen(["dd", f"if={pipe}", f"of={copy}"], stderr=subprocess.DEVNULL)
    try:
        yield
        assert pipe.is_fifo()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", WRITERS)
def test_pipes_and_files_receive_the_same_bytes(tmp_path, kind):
    file, pipe, copy = (tmp_path / name for name in ("file", "pipe", "copy"))
    WRITERS[kind](str(file))
    with reader_of(pipe, copy):
        file_names.require_writable(str(pipe))
        WRITERS[kind](str(pipe))
    assert copy.read_bytes() == file.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["copy", "file", "pipe"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc/self/fd")
def test_device_files_are_written_in_place(tmp_path):
    """Uses a link of its own: as root, a faulty atomic write would replace a system device."""
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    script = "import sys; from bert_tf.base import files; files.write_text(sys.argv[1], 'text')"
    arguments = ["-c", script, str(tmp_path / "link")]
    result = run_python(*arguments)
    assert (result.stdout, result.stderr) == ("text", "")
    assert (tmp_path / "link").is_symlink()
    with open(tmp_path / "removed", "w+") as file:
        os.remove(file.name)
        subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=file, check=True)
        assert file.read() == "text"
    assert os.listdir(tmp_path) == ["link"]
    assert files.is_stream("/dev/null")
