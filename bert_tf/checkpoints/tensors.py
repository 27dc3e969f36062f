"""Lists, reads and writes the tensors of a checkpoint by name."""

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.base import backend, files
from bert_tf.base.errors import UserError, reason

GLOBAL_STEP = "global_step"

# This key is in every object-based checkpoint (TensorFlow 2's format), and in no name-based one.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class UnreadableCheckpoint(UserError):
    """The files of a checkpoint are missing, truncated or damaged, or are not a checkpoint."""


def step_of(prefix: str) -> int:
    """Returns a checkpoint's training step; 0 if there is none, as in published checkpoints."""
    if GLOBAL_STEP not in shapes(prefix):
        return 0
    (_, step), *_ = read(prefix, [GLOBAL_STEP])
    with explained_read_errors(prefix):
        return int(np.asarray(step).item())


def shapes(prefix: str) -> dict[str, list[int]]:
    """Returns the shapes of all tensors in a checkpoint, by tensor name.

    Raises:
        UserError: the checkpoint cannot be read, or is object-based.
    """
    return dict(_open(prefix).get_variable_to_shape_map())


def read(prefix: str, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the names and values of variables, one at a time, because checkpoints may be large.

    TensorFlow initializes no devices for this, so it can be called before they are configured.

    Raises:
        UserError: the checkpoint cannot be read, for instance because it is truncated.
    """
    reader = _open(prefix)
    for name in names:
        with explained_read_errors(prefix):
            value = reader.get_tensor(name)
        yield name, value


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes a checkpoint that a TF1 `Saver` and `tf.train.load_checkpoint` can read.

    TensorFlow writes both files under temporary names and renames them. They are then synced to
    disk, to survive a power failure.

    Raises:
        UserError: a tensor has NaN or infinity, or the files cannot be written.
    """
    names, folder = sorted(tensors), os.path.dirname(prefix) or "."
    for name in names:
        if problem := non_finite(name, np.asarray(tensors[name])):
            raise UserError(f"{problem}, so {prefix} is not written")
    try:
        with backend.tf.device("/cpu:0"):
            backend.tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[backend.tf.convert_to_tensor(tensors[name]) for name in names],
            )
    except backend.tf.errors.OpError as error:
        raise UserError(f"Cannot write the checkpoint {prefix}: {reason(error)}") from error
    for file in files.list_dir(folder):
        if file.startswith(os.path.basename(prefix) + "."):
            files.sync(os.path.join(folder, file))
    files.sync(folder)


def non_finite(name: str, value: np.ndarray) -> str:
    """Says that a variable is NaN or infinite somewhere; empty if it is not."""
    is_float = value.dtype.kind in "fV"  # NumPy's kind of bfloat16 is "V"
    is_finite = not is_float or np.isfinite(value.astype(np.float32, copy=False)).all()
    return "" if is_finite else f"{name} contains NaN or infinity"


def open_reader(prefix: str) -> Any:
    """Opens a checkpoint, whether it is name-based or object-based."""
    with explained_read_errors(prefix):
        folder, name = os.path.split(prefix)
        return backend.tf.train.load_checkpoint(os.path.join(folder_to_read(folder), name))


def folder_to_read(folder: str) -> str:
    """Returns a path of a folder that TensorFlow reads from: a link if the name has brackets.

    TensorFlow writes to such a folder, but takes the name for a pattern when it reads.
    """
    return _link_to(os.path.abspath(folder)) if "[" in folder else folder


@functools.cache
def _link_to(folder: str) -> str:
    link = os.path.join(temporary_folder(), "link")
    with files.wrap_errors("link to", folder):
        os.symlink(folder, link)
    return link


def temporary_folder() -> str:
    """Creates a folder that is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix="bert_tf_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def explained_read_errors(prefix: str) -> Iterator[None]:
    """Converts TensorFlow's errors about missing, truncated and unrelated files."""
    try:
        yield
    except (backend.tf.errors.OpError, LookupError, RuntimeError, ValueError) as error:
        raise UnreadableCheckpoint(
            f"Cannot read the checkpoint {prefix}: its files are missing, damaged or not a "
            f"checkpoint (TensorFlow says: {reason(error)})"
        ) from error


def _open(prefix: str) -> Any:
    reader = open_reader(prefix)
    if reader.has_tensor(OBJECT_GRAPH):
        raise UserError(f"{prefix} is an object-based TensorFlow 2 checkpoint")
    return reader
