"""Checkpoints of the original: name-based files, with whatever lies beside them."""

import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints, releases
from bert_tf.checkpoints.formats.base import Source
from bert_tf.checkpoints.model import EXTRA_NAMES, SLOT_NAMES
from bert_tf.errors import UserError


class OriginalSource(Source):
    """A name-based checkpoint, with Adam slots and step where it has them.

    Args:
        prefix: of its files.
    """

    kind = "original"

    def __init__(self, prefix: str) -> None:
        folder = os.path.dirname(prefix) or "."
        super().__init__(prefix, folder)
        self.take_run(folder)
        release = releases.named(os.path.dirname(os.path.abspath(prefix)))
        if self.do_lower_case is None and release:
            self.do_lower_case = not release.cased

    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of everything in it, Adam slots and step included."""
        return checkpoints.shapes(self.path)

    def types(self) -> dict[str, str]:
        """Names and types of everything in it."""
        kinds = tf.train.load_checkpoint(self.path).get_variable_to_dtype_map()
        return {name: kind.name for name, kind in kinds.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values, in the types of the file."""
        return checkpoints.read(self.path, names)


def is_of_training(name: str) -> bool:
    """Whether a variable is not the model's: Adam slots, step, and what else a training keeps."""
    first, last = name.split("/")[0], name.rsplit("/", 1)[-1]
    return name == checkpoints.GLOBAL_STEP or last in SLOT_NAMES or first in EXTRA_NAMES


def refuse_pickle(path: str) -> None:
    """Refuses a file that can only be read by running what stands in it.

    Raises:
        UserError: it says how to save the model otherwise.
    """
    if path.endswith((".bin", ".pt", ".pth", ".pkl", ".pickle")):
        raise UserError(
            f"{path} is a pickle: to open it is to run what is in it, so it is never opened. Where "
            "you trust it, save it anew with transformers, AutoModelForPreTraining.from_pretrained"
            "(folder).save_pretrained(new_folder) or the class that it was trained with, which "
            "writes model.safetensors"
        )
