"""The tensors of one checkpoint, by name: list, read, write."""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.data.parallel import map_in_order, num_cores
from bert_tf.errors import UserError

GLOBAL_STEP = "global_step"

# What TensorFlow raises for files that are missing, truncated or of another kind.
_READ_ERRORS = (tf.errors.OpError, LookupError, RuntimeError, ValueError)
# The entry by which TensorFlow 2 marks its other, object-based kind of checkpoint.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# So much is read by a thread at a time, and so many threads read. About two parts for each thread
# are in memory beside the model; a large variable is a part by itself.
_PART_BYTES = 1 << 25
_MOST_THREADS = 4


class UnreadableCheckpoint(UserError):
    """The files of a checkpoint are truncated, damaged, or not a checkpoint."""


def step_of(prefix: str) -> int:
    """The training step of a checkpoint, 0 where it has none.

    Raises:
        UserError: its `global_step` is not a step.
    """
    if GLOBAL_STEP not in shapes(prefix):
        return 0
    (_, step), *_ = read(prefix, [GLOBAL_STEP])
    if np.shape(step) != () or not np.issubdtype(np.asarray(step).dtype, np.integer) or step < 0:
        raise UserError(f"{GLOBAL_STEP} of the checkpoint {prefix} is no training step: {step!r}")
    return int(step)


def shapes(prefix: str) -> dict[str, list[int]]:
    """Names and shapes of everything in a checkpoint.

    Raises:
        UserError: the checkpoint cannot be read, or is not of the original's kind.
    """
    return dict(_open(prefix).get_variable_to_shape_map())


def read(prefix: str, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and values of some variables, one at a time: a checkpoint may be large.

    Devices are not looked for, so that this may come before they are chosen.

    Raises:
        UserError: the checkpoint cannot be read, for instance because it is truncated.
    """
    reader = _open(prefix)
    for name in names:
        try:
            value = reader.get_tensor(name)
        except _READ_ERRORS as error:
            raise _unreadable(prefix, error) from error
        yield name, value


def read_tensors(prefix: str, names: Iterable[str]) -> Iterator[tuple[str, tf.Tensor]]:
    """Yields names and values of some variables, read ahead by several threads, for a model.

    A variable on the CPU takes over the memory of a tensor that it is assigned, where it would
    copy an array.

    Args:
        prefix: of the checkpoint.
        names: some of `shapes`.

    Raises:
        UserError: the checkpoint cannot be read.
    """
    reader, prefix = _open(prefix), os.fspath(prefix)
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()

    def restored(part: Sequence[str]) -> list[tuple[str, tf.Tensor]]:
        try:
            with tf.device("/cpu:0"):
                values = tf.raw_ops.RestoreV2(
                    prefix=prefix,
                    tensor_names=part,
                    shape_and_slices=[""] * len(part),
                    dtypes=[types[name] for name in part],
                )
        except tf.errors.ResourceExhaustedError:
            raise  # No fault of the checkpoint.
        except tf.errors.OpError as error:
            raise _unreadable(prefix, error) from error
        return list(zip(part, values, strict=True))

    parts = _parts(names, lambda name: math.prod(shapes[name]) * types[name].size)
    for part in map_in_order(restored, parts, min(num_cores(), _MOST_THREADS)):
        yield from part


def _parts(names: Iterable[str], size: Callable[[str], int]) -> Iterator[list[str]]:
    """Consecutive names, in lists of at most `_PART_BYTES`, or of one name."""
    part: list[str] = []
    taken = 0
    for name in names:
        if part and taken + size(name) > _PART_BYTES:
            yield part
            part, taken = [], 0
        part.append(name)
        taken += size(name)
    if part:
        yield part


def on_cpu(value: Any) -> tf.Tensor:
    """A variable's value as it is now, in the memory of the CPU."""
    with tf.device("/cpu:0"):
        return tf.identity(tf.convert_to_tensor(value))


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes tensors by name, readable by a TF1 `Saver` and by `tf.train.load_checkpoint`.

    TensorFlow writes both files under temporary names and renames them; when this returns they
    are on the disk, also after a power cut.

    Raises:
        UserError: the files cannot be written.
    """
    names = sorted(tensors)
    try:
        with tf.device("/cpu:0"):
            tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
            )
    except tf.errors.OpError as error:
        raise UserError(f"Cannot write the checkpoint {prefix}: {_reason(error)}") from error
    for file in files.list_dir(os.path.dirname(prefix) or "."):
        if file.startswith(os.path.basename(prefix) + "."):
            files.sync(os.path.join(os.path.dirname(prefix), file))
    files.sync(os.path.dirname(prefix) or ".")


def _open(prefix: str) -> Any:
    try:
        reader = tf.train.load_checkpoint(prefix)
    except _READ_ERRORS as error:
        raise _unreadable(prefix, error) from error
    if reader.has_tensor(_OBJECT_GRAPH):
        raise UserError(
            f"{prefix} is an object-based checkpoint of TensorFlow 2, not a name-based one of the "
            "original release: its variables are not called bert/embeddings/... Use the "
            "bert_model.ckpt of a release, or a model.ckpt-N that a script of bert_tf wrote"
        )
    return reader


def _unreadable(prefix: str, error: Exception) -> UnreadableCheckpoint:
    reason = _reason(error)[:200] or type(error).__name__
    return UnreadableCheckpoint(
        f"Cannot read the checkpoint {prefix}: its files are truncated or damaged, a good copy is "
        f"needed (TensorFlow says: {reason})"
    )


def _reason(error: Exception) -> str:
    """What TensorFlow says, without the names of its operations."""
    said = " ".join(str(error).split())
    return re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:.*)?", "", said).strip()
