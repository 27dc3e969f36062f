"""The folder of compiled programs, with TensorFlow's own cache on the CPU."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bert_tf.base import xla_cache
from tests.oracle import ROOT

PROGRAM = """
from bert_tf.base.quiet import import_tensorflow
import_tensorflow()
import tensorflow as tf
print(float(tf.function(lambda x: x * 2.0 + 1.0, jit_compile=True)(tf.constant(3.0))))
"""


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, xla_cache.VARIABLE: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_succeeds(*processes):
    for process in processes:
        stdout, stderr = process.communicate()
        assert (stdout, stderr) == ("7.0\n", "")


def programs(folder):
    return [path.stat().st_mtime_ns for path in folder.glob("tensorflow-2.21*/*.pb")]


def test_programs_are_kept_for_later_processes(tmp_path):
    folder = tmp_path / """it's, "my" \\ $HOME;cache="""
    assert_succeeds(start(folder), start(folder))
    stored = programs(folder)
    assert len(stored) == 1
    assert_succeeds(start(folder))
    assert programs(folder) == stored


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path):
    (tmp_path / "file").touch()
    # /proc is read-only even for root.
    assert_succeeds(start("/proc/bert_tf"), start(tmp_path / "file"))


def test_a_folder_that_others_can_change_is_not_used(tmp_path, monkeypatch, caplog):
    def is_used():
        monkeypatch.setenv(xla_cache.VARIABLE, str(tmp_path))
        monkeypatch.setenv("TF_XLA_FLAGS", "")
        caplog.clear()
        xla_cache.enable()
        used = bool(os.environ["TF_XLA_FLAGS"])
        assert (f"{tmp_path} is not used: other users can" in caplog.text) == (not used)
        return used

    assert is_used()
    (folder,) = tmp_path.iterdir()
    modes = [(0o755, 0o700), (0o775, 0o755), (0o1777, 0o700), (0o777, 0o700), (0o700, 0o770)]
    for parent, own in [*modes, (0o1777, 0o702)]:
        tmp_path.chmod(parent)
        folder.chmod(own)
        assert is_used() == (own & 0o22 == 0 and parent != 0o777)
    folder.chmod(0o700)
    tmp_path.chmod(0o700)
    stat = os.stat
    for changed in (folder, tmp_path):
        for user in (0, 12345):
            other = lambda path, user=user, changed=changed: SimpleNamespace(  # noqa: E731
                st_mode=0o40700, st_uid=user if str(path) == str(changed) else os.getuid()
            )
            monkeypatch.setattr(xla_cache.os, "stat", other)
            used = xla_cache._is_private(str(folder))
            monkeypatch.setattr(xla_cache.os, "stat", stat)
            assert used == (user == 0)


@pytest.fixture
def enable(tmp_path, monkeypatch):
    """Enables the cache in `tmp_path`; returns its subfolder and TF_XLA_FLAGS."""
    monkeypatch.setenv(xla_cache.VARIABLE, str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)

    def run():
        xla_cache.enable()
        flags = os.environ.pop("TF_XLA_FLAGS")
        return (flags.split('"')[1] if '"' in flags else ""), flags

    return run


def test_a_full_disk_is_not_written(enable, monkeypatch):
    assert "read_only" not in enable()[1]
    full = SimpleNamespace(free=xla_cache._MIN_FREE_BYTES - 1)
    monkeypatch.setattr(xla_cache.shutil, "disk_usage", lambda path: full)
    assert "read_only=true" in enable()[1]


def test_old_and_empty_programs_are_removed(enable, monkeypatch):
    folder, _ = enable()
    other = os.path.join(os.path.dirname(folder), "tensorflow-other")
    os.mkdir(other)
    files = [("new.pb", 40), ("empty.pb", 0), ("new.pbhost-1.tmp", 0), ("old.pb", 50)]
    for age, (name, size) in enumerate([*files, ("../tensorflow-other/oldest.pb", 60)]):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(b"x" * size)
        os.utime(path, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(xla_cache, "_MAX_BYTES", 100)
    enable()
    assert (sorted(os.listdir(folder)), os.listdir(other)) == (["new.pb", "old.pb"], [])
    with open(os.path.join(folder, "now.pbhost-2.tmp"), "wb") as file:
        file.write(b"x")  # another process is writing it
    enable()
    assert "now.pbhost-2.tmp" in os.listdir(folder)


def test_each_driver_card_and_setting_has_its_own_folder(enable, monkeypatch):
    folders = {enable()[0]}
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=3")
    folders.add(enable()[0])
    card = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n"
    monkeypatch.setattr(
        xla_cache.glob, "glob", lambda pattern: ["0"] if "nvidia" in pattern else []
    )
    monkeypatch.setattr(xla_cache, "_read", lambda path: card if path == "0" else "")
    folders.add(enable()[0])
    monkeypatch.setattr(xla_cache, "_read", lambda path: card if path == "0" else "driver 580")
    folders.add(enable()[0])
    assert len(folders) == 4
    assert sum("NVIDIA_H100_80GB_HBM3" in folder for folder in folders) == 2


def test_users_flags_win(enable, monkeypatch):
    flags = "--tf_xla_persistent_cache_directory=mine"
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    assert enable()[1] == flags
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    assert enable()[1].startswith("--tf_xla_clustering_debug --tf_xla_persistent_cache_directory")
