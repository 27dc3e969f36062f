"""Checkpoints of the original: name-based files, and the files next to them."""

import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints, releases
from bert_tf.checkpoints.formats.source import Source


class OriginalSource(Source):
    """A name-based checkpoint; if there are Adam slots and a step, they are variables, too."""

    kind = "original"

    def __init__(self, prefix: str) -> None:
        folder = os.path.dirname(prefix) or "."
        super().__init__(prefix, folder)
        self.take_run(folder)
        release = releases.named(os.path.dirname(os.path.abspath(prefix)))
        if self.do_lower_case is None and release:
            self.do_lower_case = not release.cased

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of all variables, Adam slots and step included."""
        return checkpoints.shapes(self.path)

    def types(self) -> dict[str, str]:
        """Returns the stored types by name."""
        kinds = tf.train.load_checkpoint(self.path).get_variable_to_dtype_map()
        return {name: kind.name for name, kind in kinds.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values in their stored types."""
        return checkpoints.read(self.path, names)
