"""Locks: exclusive across processes and threads, and released when a process is killed."""

import errno
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bert_tf.base import locks
from bert_tf.base.errors import UserError
from tests.oracle import ROOT
from tests.processes import run_python

_HOLD_LOCK = (
    "import sys; from bert_tf.base import locks\n"
    "with locks.exclusive(sys.argv[1], '--output_dir=out'):\n"
    "    print('locked', flush=True); sys.stdin.read()"
)


def hold(path) -> subprocess.Popen:
    """Starts a process that holds the lock until its standard input ends."""
    command = [sys.executable, "-c", _HOLD_LOCK, str(path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "locked\n"
    return process


def assert_locked(path, pid=None):
    holder = f"process {pid or os.getpid()} on {socket.gethostname()}"
    expected = re.escape(f"--output_dir=out is in use by {holder}: ")
    expected += "wait until it ends, or pass a different --output_dir"
    with (
        pytest.raises(UserError, match=f"^{expected}$"),
        locks.exclusive(str(path), "--output_dir=out"),
    ):
        pass


def test_lock_excludes_other_processes(tmp_path):
    path = tmp_path / "out" / ".lock"
    process = hold(path)
    assert_locked(path, process.pid)
    # Checking the lock does not release it.
    assert_locked(path, process.pid)
    process.communicate("")
    assert process.returncode == 0
    assert not (tmp_path / "out").exists()


def test_killed_process_releases_its_lock(tmp_path):
    path = tmp_path / "out" / ".lock"
    process = hold(path)
    process.kill()
    process.communicate()
    assert str(process.pid) in path.read_text()
    with locks.exclusive(str(path), "--output_dir=out"):
        # Do not read the file here: closing it would release the lock.
        second = run_python("-c", _HOLD_LOCK, path)
        assert f"by process {os.getpid()} on {socket.gethostname()}: wait" in second.stderr
        (tmp_path / "out" / "checkpoint").write_text("written while locked")
    assert os.listdir(tmp_path / "out") == ["checkpoint"]


def test_lock_is_not_reentrant(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with locks.exclusive(str(tmp_path / ".lock")):
        assert_locked(tmp_path / ".lock")
        assert_locked(tmp_path / "link" / ".lock")
    with locks.exclusive(str(tmp_path / ".lock")):
        assert (tmp_path / ".lock").exists()


def test_lock_without_flag_waits(tmp_path):
    """Threads increment a counter; without the lock, updates would be lost."""
    counter = tmp_path / "counter"
    counter.write_text("0")

    def increment():
        for _ in range(5):
            with locks.exclusive(locks.lock_path(str(counter))):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "20"
    assert os.listdir(tmp_path) == ["counter"]


def test_only_new_directories_are_removed(tmp_path):
    (tmp_path / "empty").mkdir()
    with locks.exclusive(str(tmp_path / "empty" / "new" / "newer" / ".lock")):
        pass
    assert list(Path(tmp_path).rglob("*")) == [tmp_path / "empty"]


def test_file_systems_without_locks(tmp_path, monkeypatch, run_log):
    with (
        locks.exclusive("ram://out/.lock", "--output_dir=ram://out"),
        locks.exclusive("ram://out/.lock", "--output_dir=ram://out"),
    ):
        pass
    records = [record for record in run_log.records if record.name.startswith("bert_tf")]
    assert {record.levelname for record in records} == {"INFO"}
    assert "--output_dir=ram://out: remote folders are not locked" in run_log.text

    def raise_no_locks(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks, "_lock", raise_no_locks)
    with locks.exclusive(str(tmp_path / ".lock"), "--output_dir=out"):
        assert "lock ([Errno" in run_log.text
