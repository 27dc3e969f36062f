"""Lists, reads and writes the tensors of a checkpoint by name."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf import backend, files
from bert_tf.errors import UserError, reason

GLOBAL_STEP = "global_step"

# Key that only TensorFlow 2's object-based checkpoints contain.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class UnreadableCheckpoint(UserError):
    """The files of a checkpoint are truncated, damaged, or not a checkpoint."""


def step_of(prefix: str) -> int:
    """Returns the training step of a checkpoint; 0 if it does not contain one."""
    if GLOBAL_STEP not in shapes(prefix):
        return 0
    (_, step), *_ = read(prefix, [GLOBAL_STEP])
    if np.shape(step) or not np.issubdtype(np.asarray(step).dtype, np.integer) or step < 0:
        raise UserError(f"{GLOBAL_STEP} in {prefix} is not a training step: {step!r}")
    return int(step)


def shapes(prefix: str) -> dict[str, list[int]]:
    """Returns the shapes of all tensors in a checkpoint by name.

    Raises:
        UserError: the checkpoint cannot be read, or is object-based.
    """
    return dict(_open(prefix).get_variable_to_shape_map())


def read(prefix: str, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and values of variables, one at a time, because checkpoints may be large.

    Does not initialize devices, so it can be called before they are configured.

    Raises:
        UserError: the checkpoint cannot be read, for instance because it is truncated.
    """
    reader = _open(prefix)
    for name in names:
        try:
            value = reader.get_tensor(name)
        except _read_errors() as error:
            raise _unreadable(prefix, error) from error
        yield name, value


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes a checkpoint that a TF1 `Saver` and `tf.train.load_checkpoint` can read.

    TensorFlow writes both files under temporary names and renames them. They are then synced to
    disk, to survive a power failure.

    Raises:
        UserError: the files cannot be written.
    """
    names, folder = sorted(tensors), os.path.dirname(prefix) or "."
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


def open_reader(prefix: str) -> Any:
    """Opens a name-based or object-based checkpoint."""
    try:
        return backend.tf.train.load_checkpoint(prefix)
    except _read_errors() as error:
        raise _unreadable(prefix, error) from error


def _read_errors() -> tuple[type[Exception], ...]:
    """Returns what TensorFlow raises for missing, truncated and unrelated files."""
    return (backend.tf.errors.OpError, LookupError, RuntimeError, ValueError)


def _open(prefix: str) -> Any:
    reader = open_reader(prefix)
    if reader.has_tensor(OBJECT_GRAPH):
        advice = "Pass a name-based one: a bert_model.ckpt, or bert_tf's model.ckpt-N"
        raise UserError(f"{prefix} is an object-based TensorFlow 2 checkpoint. {advice}")
    return reader


def _unreadable(prefix: str, error: Exception) -> UnreadableCheckpoint:
    problem = "its files are truncated or damaged; copy or download it again"
    details = f"{problem} (TensorFlow says: {reason(error)})"
    return UnreadableCheckpoint(f"Cannot read the checkpoint {prefix}: {details}")
