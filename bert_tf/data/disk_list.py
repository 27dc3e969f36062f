"""Sequences of more items than memory holds."""

import itertools
import pickle
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")

# As many items stay in memory; some 50 MB of pairs of sentences.
_MAX_ITEMS = 1 << 17
_CHUNK_ITEMS = 1024


def collect(items: Iterable[Item], max_items: int = _MAX_ITEMS) -> Sequence[Item]:
    """Returns a list of the items or, if there are more than `max_items`, a `DiskList`.

    Example, in a task with more examples than memory holds:

        def read(self, split):
            return collect(json.loads(line) for line in open(f"{split}.jsonl"))
    """
    items = iter(items)
    first = list(itertools.islice(items, max_items + 1))
    return first if len(first) <= max_items else DiskList(itertools.chain(first, items))


class DiskList(Sequence[Item]):
    """A sequence in an unnamed temporary file, fast to iterate and to slice; thread-safe.

    The items must be picklable. The file lies in the folder that the environment variable TMPDIR
    names, and disappears with the object or the process.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._lock = threading.Lock()
        self._offsets: list[int] = []
        self._length = 0
        self._cached: tuple[int, list[Item]] = (-1, [])
        items = iter(items)
        while chunk := list(itertools.islice(items, _CHUNK_ITEMS)):
            self._offsets.append(self._file.tell())
            pickle.dump(chunk, self._file, pickle.HIGHEST_PROTOCOL)
            self._length += len(chunk)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        positions = range(self._length)[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        chunk, position = divmod(positions, _CHUNK_ITEMS)
        return self._load(chunk)[position]

    def __iter__(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(map(self._load, range(len(self._offsets))))

    def _load(self, chunk: int) -> list[Item]:
        with self._lock:
            if self._cached[0] != chunk:
                self._file.seek(self._offsets[chunk])
                self._cached = chunk, pickle.load(self._file)
            return self._cached[1]
