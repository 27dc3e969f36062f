"""The random number generator for pre-training instances."""

import random


class Rng:
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
