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

from bert_tf.base.errors import UserError
from bert_tf.data.parallel import chunks, map_in_order, parallel_for
from tests.oracle import ROOT

# A hung test fails after this time; on a busy machine, processes may take a minute to start.
_MAX_SECONDS = 300.0


def wait_until(condition):
    """Waits for a condition, not for a time that may be too short on a busy machine."""
    deadline = time.monotonic() + _MAX_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition is still false"
        time.sleep(0.05)


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
        wait_until(lambda: len(started) > 1)
        time.sleep(0.1)  # in which more than 1000 items would start
        assert len(started) < 1000


def test_error_propagates_and_stops_the_work():
    started, threads = [], threading.active_count()

    def fail(number):
        started.append(number)
        if number == 3:
            raise ValueError("item 3")

    with pytest.raises(ValueError, match="item 3"):
        list(map_in_order(fail, range(10_000)))
    assert len(started) < 1000
    wait_until(lambda: threading.active_count() <= threads)


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


def write_pid_and_wait(folder, num_workers, item):
    """Like `write_pid`, but waits until every worker has an item."""
    (folder / str(item)).write_text(str(os.getpid()))
    wait_until(lambda: len(read_pids(folder)) == num_workers)


def read_pids(folder):
    return {path.read_text() for path in folder.iterdir()} - {""}


def no_op():
    """An empty worker initializer."""


@pytest.mark.parametrize("num_workers", [1, 3])
def test_each_item_is_processed_once(tmp_path, num_workers):
    work = functools.partial(write_pid_and_wait, tmp_path, num_workers)
    results = list(parallel_for(work, range(80), num_workers, no_op))
    assert sorted(results) == list(range(80))
    pids = read_pids(tmp_path)
    assert len(list(tmp_path.iterdir())) == 80
    assert (str(os.getpid()) in pids) == (num_workers == 1)
    assert len(pids) == num_workers


def test_worker_error_propagates(tmp_path):
    work = functools.partial(write_pid, tmp_path)
    with pytest.raises(UserError, match="bad item"):
        list(parallel_for(work, ["bad", *range(2000)], 2, no_op))
    assert len(list(tmp_path.iterdir())) < 2000


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
    try:
        wait_until(lambda: len(read_pids(folder)) == 3)
    finally:
        process.kill()
        process.wait()

    def have_stopped():
        count = len(list(folder.iterdir()))
        time.sleep(1)
        return len(list(folder.iterdir())) == count

    wait_until(have_stopped)
