"""Parallel maps over threads and processes."""

import collections
import contextvars
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
from typing import TypeVar

from bert_tf.base.errors import Terminated, UserError
from bert_tf.base.signals import SIGNALS, handle_signals

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_threads: int | None = None
) -> Generator[Result, None, None]:
    """Yields `function(item)` for each item, in order; threads, by default one per core, run ahead.

    Threads suffice for NumPy and TensorFlow, as both release the GIL.
    """
    num_threads = num_threads or num_cores()
    pending: collections.deque[Future] = collections.deque()
    pool = ThreadPoolExecutor(num_threads)
    try:
        for item in items:
            # In a thread, messages have the words of the caller, too.
            pending.append(pool.submit(contextvars.copy_context().run, function, item))
            if len(pending) > 2 * num_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Splits items into slices of `size`; the last one may be shorter."""
    return (items[first : first + size] for first in range(0, len(items), size))


def parallel_for(
    function: Callable[[Item], object],
    items: Sequence[Item],
    num_workers: int,
    start: Callable[[], object],
) -> Iterator[Item]:
    """Calls `function` on items in several processes; yields finished items.

    Args:
        function: called for its side effects; must be importable by a new process.
        items: picklable; they are processed and yielded in any order.
        num_workers: number of processes; with one worker or item, this process does the work.
        start: initializer, called first in each new process.

    Raises:
        UserError: a process was killed or could not start. Exceptions of `function` propagate.
    """
    num_workers = min(num_workers, len(items))
    if num_workers < 2:
        return _run_serially(function, items)
    # A forked process starts at once, but lacks the parent's threads. TensorFlow creates threads on
    # first use; from then on, processes must be spawned, and have to import TensorFlow again.
    method = "fork" if _is_single_threaded() else "spawn"
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(num_workers, context, _start_process, (start,))
    if method == "fork":
        # The pool forks on its first task; Python would lose a signal that arrives during the fork.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pool.submit(int)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return _run_in_pool(pool, function, items)


def _run_serially(function: Callable[[Item], object], items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        function(item)
        yield item


def _run_in_pool(
    pool: ProcessPoolExecutor, function: Callable[[Item], object], items: Sequence[Item]
) -> Iterator[Item]:
    try:
        pending = {pool.submit(_run_item, function, item): item for item in items}
        for future in futures.as_completed(pending):
            future.result()
            yield pending[future]
    except BrokenProcessPool as error:
        problem = "A worker process was killed or could not start"
        advice = "Pass a smaller --num_workers, and run the same command again to continue"
        raise UserError(problem, fix=advice) from error
    except (KeyboardInterrupt, Terminated):
        # Otherwise shutdown would wait for the workers to finish their items.
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _is_single_threaded() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


def _start_process(start: Callable[[], object]) -> None:
    # A terminal sends Ctrl-C to all processes; only the parent reports it.
    handle_signals(signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # If the parent is killed, exit too, instead of waiting for items forever.
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    start()
    handle_signals(_exit_once)


def _exit_once(signal_number: int, frame: FrameType | None) -> None:
    # Ignore further signals; with SIG_IGN, Python would complain about one that has just arrived.
    handle_signals(lambda signal_number, frame: None)
    sys.exit(128 + signal_number)


def _run_item(function: Callable[[Item], object], item: Item) -> None:
    try:
        function(item)
    except SystemExit:
        # The exception has removed the temporary files; exit before the pool sends the next item.
        os._exit(1)


def _exit_with_parent(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
