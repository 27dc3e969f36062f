"""Work on all cores, with results in order."""

import collections
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, TypeVar

from bert_tf.errors import Terminated, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_threads: int | None = None
) -> Generator[Result, None, None]:
    """Maps by threads, one per core by default, which run ahead of the caller by a few items.

    Threads suffice for NumPy and TensorFlow, which release the GIL.
    """
    workers = num_threads or num_cores()
    waiting: collections.deque = collections.deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # After an error.
            for future in waiting:
                future.cancel()


def num_cores() -> int:
    """Counts the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Splits items into slices of `size`; the last one may be shorter."""
    return (items[first : first + size] for first in range(0, len(items), size))


def do_by_processes(
    function: Callable[[Item], object],
    items: Sequence[Item],
    num_workers: int,
    start: Callable[[], object],
) -> Iterator[Item]:
    """Does the items in any order by `num_workers` processes, this one included; yields those done.

    Args:
        function: what to do with an item, for its effect; found by its name in a new process.
        items: they are pickled.
        num_workers: 1 starts no process.
        start: called first in each new process.

    Raises:
        UserError: a process was killed. Exceptions of `function` are raised as they are.
    """
    count = min(num_workers, len(items)) - 1
    if count < 1:
        return _do_here(function, items)
    # A forked process starts at once, but lacks the threads that TensorFlow has once it computes;
    # a spawned one must import TensorFlow first.
    method = "fork" if _is_single_threaded() else "spawn"
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(count, context, _start_process, (start,))
    if method == "fork":
        # The pool forks on its first task; Python would lose a signal that arrives meanwhile.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pool.submit(int)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return _do_by_pool(pool, 2 * count, function, items)


def _do_here(function: Callable[[Item], object], items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        function(item)
        yield item


def _do_by_pool(
    pool: ProcessPoolExecutor,
    ahead: int,
    function: Callable[[Item], object],
    items: Sequence[Item],
) -> Iterator[Item]:
    rest = collections.deque(items)
    waiting: dict[Future, Item] = {}
    try:
        while rest or waiting:
            while rest and len(waiting) < ahead:
                item = rest.popleft()
                waiting[pool.submit(_do, function, item)] = item
            if rest:
                # This process takes items from the end while the others start.
                item = rest.pop()
                function(item)
                yield item
            done, _ = futures.wait(waiting, 0 if rest else None, futures.FIRST_COMPLETED)
            for future in done:
                future.result()
                yield waiting.pop(future)
    except BrokenProcessPool as error:
        raise UserError(
            "A worker process was killed, perhaps for lack of memory (then pass a smaller "
            "--num_workers), or could not start (scripts need if __name__ == '__main__'). The "
            "same command continues with what is missing"
        ) from error
    except (KeyboardInterrupt, Terminated):
        # Otherwise shutdown waits until they have done their items.
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _is_single_threaded() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # Not on Linux.
        return False


def _start_process(start: Callable[[], object]) -> None:
    # A terminal sends Ctrl-C to all processes; only the first one reports it.
    _handle_signals(signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    # An orphan would wait for work for ever.
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    start()
    _handle_signals(_exit_once)


def _handle_signals(handler: Any) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _exit_once(number: int, frame: FrameType | None) -> None:
    # Not SIG_IGN: Python would complain of a signal that has just arrived.
    _handle_signals(lambda number, frame: None)
    sys.exit(128 + number)


def _do(function: Callable[[Item], object], item: Item) -> None:
    try:
        function(item)
    except SystemExit:
        # Temporary files are removed; the pool must not give this process another item.
        os._exit(1)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
