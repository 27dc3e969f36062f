"""Parallel execution: order, errors, and bounded prefetching."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_tf.data.parallel import chunks, map_in_order, parallel_for
from bert_tf.errors import UserError
from tests.oracle import ROOT


def test_results_are_ordered():
    def square(number):
        time.sleep(0.02 if number % 5 == 0 else 0)
        return number * number

    assert list(map_in_order(square, range(40))) == [n * n for n in range(40)]
    assert list(map_in_order(square, [])) == []


def test_prefetch_is_bounded():
    started = []
    results = map_in_order(started.append, iter(range(10_000)))
    with contextlib.closing(results):
        next(results)
        time.sleep(0.1)
        assert 1 < len(started) < 1000


def test_error_propagates_and_stops_the_work():
    started = []

    def fail(number):
        started.append(number)
        if number == 3:
            raise ValueError("item 3")

    with pytest.raises(ValueError, match="item 3"):
        list(map_in_order(fail, range(10_000)))
    assert len(started) < 1000
    assert threading.active_count() < 20


def test_chunks():
    assert list(chunks([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(chunks([], 2)) == []


# ---- Processes -----------------------------------------------------------------------------


def write_pid(folder, item):
    """Writes the process id to a file named after the item."""
    if item == "bad":
        raise UserError("bad item")
    if item == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    (folder / str(item)).write_text(str(os.getpid()))


def no_op():
    """An empty worker initializer."""


@pytest.mark.parametrize("num_workers", [1, 3])
def test_each_item_is_processed_once(tmp_path, num_workers):
    work = functools.partial(write_pid, tmp_path)
    results = list(parallel_for(work, range(80), num_workers, no_op))
    assert sorted(results) == list(range(80))
    pids = {path.read_text() for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 80
    assert (str(os.getpid()) in pids) == (num_workers == 1)
    assert len(pids) == num_workers


def test_worker_error_propagates(tmp_path):
    work = functools.partial(write_pid, tmp_path)
    with pytest.raises(UserError, match="bad item"):
        list(parallel_for(work, ["bad", *range(100)], 2, no_op))
    assert len(list(tmp_path.iterdir())) < 100


def test_killed_worker_raises(tmp_path):
    work = functools.partial(write_pid, tmp_path)
    with pytest.raises(UserError, match="run the same command again"):
        list(parallel_for(work, ["killed", *range(100)], 2, no_op))


def test_workers_exit_with_their_parent(tmp_path):
    code = (
        "import functools, pathlib, sys; from tests.data.test_parallel import *\n"
        "if __name__ == '__main__':\n"
        "    work = functools.partial(write_pid, pathlib.Path(sys.argv[1]))\n"
        "    list(parallel_for(work, range(100000), 3, no_op))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    folder = tmp_path / "output"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, script, folder], env=environment)
    pids = set()
    deadline = time.time() + 60
    while len(pids) < 3 and time.time() < deadline:
        time.sleep(0.1)
        pids = {path.read_text() for path in folder.iterdir()} - {""}
    process.kill()
    process.wait()
    assert len(pids) == 3
    time.sleep(1)
    count = len(list(folder.iterdir()))
    time.sleep(0.5)
    assert len(list(folder.iterdir())) == count
