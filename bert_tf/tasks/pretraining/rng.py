"""Random number generators for pre-training instances: as in the original, and a faster one."""

import random


class ReferenceRng:
    """Draws the same numbers as a `random.Random`, but faster.

    `randbelow` and `shuffle` inline the internals of `random.Random`, whose nested calls would
    otherwise dominate the time spent on masking.
    """

    def __init__(self, source: random.Random) -> None:
        self.random = source.random
        self._bits = source.getrandbits

    def randbelow(self, limit: int) -> int:
        """Returns an integer from 0 to `limit` - 1; `limit` is at least 1."""
        width = limit.bit_length()
        while (value := self._bits(width)) >= limit:
            pass
        return value

    def shuffle(self, items: list) -> None:
        """Shuffles `items` in place."""
        bits = self._bits
        for last in range(len(items) - 1, 0, -1):
            width = (last + 1).bit_length()
            while (other := bits(width)) > last:
                pass
            items[last], items[other] = items[other], items[last]

    def sample(self, items: list, count: int) -> list:
        """Returns `count` items by shuffling all of them in place, as the original does."""
        self.shuffle(items)
        return items[:count]


class FastRng(ReferenceRng):
    """Draws fewer random numbers than the original, so that the results differ."""

    def shuffle(self, items: list, start: int = 0) -> None:
        """Shuffles `items` in place; stops when those from index `start` on are a random sample."""
        uniform = self.random
        for count in range(len(items), start, -1):
            other = int(uniform() * count)
            items[count - 1], items[other] = items[other], items[count - 1]

    def sample(self, items: list, count: int) -> list:
        """Returns `count` random items with only `count` draws; changes the order of `items`."""
        start = max(len(items) - count, 0)
        self.shuffle(items, start)
        return items[start:]
