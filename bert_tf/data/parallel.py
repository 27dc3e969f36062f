"""Work on all cores, with results in order."""

import collections
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """`map` by a thread for each core, which work ahead of the caller by a few items.

    Threads suffice for what spends its time in NumPy and TensorFlow, and share their tables. Python
    code of their own, as the reference tokenizer's, they do one after the other.
    """
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    waiting: collections.deque = collections.deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * (workers or 1):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # After an error, what was not begun is not needed any more.
            for future in waiting:
                future.cancel()


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Slices of so many items; the last one may be shorter."""
    return (items[first : first + size] for first in range(0, len(items), size))
