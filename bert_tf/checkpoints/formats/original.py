"""Reads original BERT checkpoints: name-based, with configuration and vocabulary next to them."""

import os
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf import backend, checkpoints, releases
from bert_tf.checkpoints.formats.source import Source


class OriginalSource(Source):
    """A name-based checkpoint; its Adam slots and training step, if any, count as variables."""

    kind = "original"

    def __init__(self, prefix: str) -> None:
        folder = os.path.dirname(prefix) or "."
        super().__init__(prefix, folder)
        self.read_run(folder)
        release = releases.named(os.path.dirname(os.path.abspath(prefix)))
        if self.do_lower_case is None and release:
            self.do_lower_case = not release.cased

    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes and stored dtypes of all variables, including Adam slots and step."""
        shapes = checkpoints.shapes(self.path)
        dtypes = backend.tf.train.load_checkpoint(self.path).get_variable_to_dtype_map()
        return {name: (shape, dtypes[name].name) for name, shape in shapes.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time, in their stored dtypes."""
        return checkpoints.read(self.path, names)
