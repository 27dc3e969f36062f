"""Checkpoints of the original: name-based files, read and written.

A checkpoint is the pair `<prefix>.index` and `<prefix>.data-00000-of-00001`. A folder of a
training run has several, and a text file `checkpoint` that names them, the newest first. The
names of the variables in it are the paths of the Keras variables (see `bert_tf.modeling`), so
there is no table that maps one to the other.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.modeling import checkpoint_name

STATE_FILE = "checkpoint"
PREFIX_OF_STEP = "model.ckpt-"
KEPT_CHECKPOINTS = 5
GLOBAL_STEP = "global_step"
SLOT_NAMES = ("adam_m", "adam_v")

_ENCODER_SCOPE = "bert/"
_SUFFIXES = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# What TensorFlow raises for files that are missing, truncated or of another kind.
_READ_ERRORS = (tf.errors.OpError, LookupError, RuntimeError, ValueError)
# The entry by which TensorFlow 2 marks its other, object-based kind of checkpoint.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a restore did, as sorted names of variables.

    Attributes:
        prefix: the checkpoint.
        restored: in the model and in the checkpoint.
        new: in the model only; they keep their random values.
        unused: in the checkpoint only, without Adam slots and step.
    """

    prefix: str
    restored: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self) -> str:
        """One sentence for a person."""
        count = len(self.restored)
        sentences = [f"{count} variables restored from {self.prefix}: {summarize(self.restored)}."]
        if self.new:
            sentences.append(f"New, from random values: {summarize(self.new)}.")
        if self.unused:
            sentences.append(f"In the checkpoint but not used: {summarize(self.unused)}.")
        return " ".join(sentences)


def summarize(names: Iterable[str]) -> str:
    """A short list of variables, with encoder layers taken together.

    Example: `bert/embeddings (5), bert/encoder/layer_0..11 (192), output_bias, output_weights`.
    """
    groups: dict[str, list[str]] = {}
    layers: set[int] = set()
    for name in sorted(names):
        layer = re.match(r"(bert/encoder/layer_)(\d+)/", name)
        if layer:
            layers.add(int(layer[2]))
        key = layer[1] if layer else "/".join(name.split("/")[:2])
        groups.setdefault(key, []).append(name)
    shown = []
    for key, members in groups.items():
        if key.endswith("layer_"):
            first, last = min(layers), max(layers)
            key += f"{first}" if first == last else f"{first}..{last}"
        shown.append(members[0] if len(members) == 1 else f"{key} ({len(members)})")
    return ", ".join(shown) or "none"


def resolve(path: str) -> str:
    """The prefix of a checkpoint that a user named.

    Args:
        path: a prefix (`bert_model.ckpt`), one of the files of a checkpoint, or a folder: its
            newest checkpoint, or the only one in it.

    Raises:
        UserError: nothing there is a checkpoint; the message says what is there instead.
    """
    if files.exists(f"{path}.index"):
        return path
    without_suffix = _SUFFIXES.sub("", path)
    if without_suffix != path and files.exists(f"{without_suffix}.index"):
        return without_suffix
    if files.is_dir(path):
        newest = latest(path)
        if newest:
            return newest
        found = _prefixes_in(path)
        if len(found) == 1:
            return os.path.join(path, found[0])
        raise UserError(
            f"{path} is a folder with {len(found)} checkpoints. Name one of them: "
            f"{', '.join(found)}"
            if found
            else f"{path} holds no checkpoint ({files.describe_absence(os.path.join(path, '*'))})"
        )
    found = _prefixes_in(os.path.dirname(path) or ".")
    hint = f"checkpoints there: {', '.join(found)}" if found else files.describe_absence(path)
    raise UserError(
        f"No checkpoint {path}: there is no file {os.path.basename(path)}.index ({hint})"
    )


def latest(folder: str) -> str | None:
    """Prefix of the newest complete checkpoint that the folder's `checkpoint` file names."""
    state = tf.train.get_checkpoint_state(folder)
    if state is None:
        return None
    named = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
    # A folder may have been moved since absolute paths were written into it.
    here = [os.path.join(folder, os.path.basename(path)) for path in named]
    return next((prefix for prefix in reversed(here) if files.exists(f"{prefix}.index")), None)


def step_of(prefix: str) -> int:
    """The training step of a checkpoint, 0 where it has none."""
    reader = _open(prefix)
    return int(reader.get_tensor(GLOBAL_STEP)) if reader.has_tensor(GLOBAL_STEP) else 0


def shapes(prefix: str) -> dict[str, list[int]]:
    """Names and shapes of everything in a checkpoint.

    Raises:
        UserError: the checkpoint cannot be read, or is not of the original's kind.
    """
    return dict(_open(prefix).get_variable_to_shape_map())


def read(prefix: str, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and values of some variables, one at a time: a checkpoint may be large.

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


def write(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes tensors by name, readable by a TF1 `Saver` and by `tf.train.load_checkpoint`.

    TensorFlow writes both files under temporary names and renames them.

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
        raise UserError(f"Cannot write the checkpoint {prefix}: {error.message}") from error


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model that belong into a checkpoint, by name.

    Only trainable ones do: the others are states of random generators.
    """
    return {checkpoint_name(variable): variable for variable in model.trainable_variables}


def restore(model: keras.Model, prefix: str) -> Restored:
    """Puts the values of a checkpoint into a model.

    As in the original, a head that the checkpoint lacks keeps its random values, and what only
    the checkpoint has is left; Adam slots and step are never taken. Unlike in the original, an
    encoder that does not fit completely is refused before anything is changed.

    Raises:
        UserError: the checkpoint does not fit (with both lists and both shapes) or cannot be
            read.
    """
    variables = named_variables(model)
    stored = {
        name: shape
        for name, shape in shapes(prefix).items()
        if name != GLOBAL_STEP and not name.endswith(SLOT_NAMES)
    }
    _check_fit(prefix, {name: list(v.shape) for name, v in variables.items()}, stored)
    restored = sorted(variables.keys() & stored.keys())
    for name, value in read(prefix, restored):
        variables[name].assign(value)
    return Restored(
        prefix,
        restored=tuple(restored),
        new=tuple(sorted(variables.keys() - stored.keys())),
        unused=tuple(sorted(stored.keys() - variables.keys())),
    )


def restore_optimizer(model: keras.Model, optimizer: Any, prefix: str) -> bool:
    """Puts Adam slots and step of a training checkpoint into an optimizer that was built.

    Returns:
        Whether the checkpoint has slots. One without them (stripped, or a released one) leaves
        them at zero.
    """
    stored = shapes(prefix)
    slots = {name: variable for name, variable in _named_slots(optimizer).items() if name in stored}
    for name, value in read(prefix, slots):
        slots[name].assign(value)
    optimizer.iterations.assign(step_of(prefix))
    return bool(slots)


def save(folder: str, model: keras.Model, optimizer: Any) -> str:
    """Writes `model.ckpt-<step>` with Adam slots and step, and removes all but the newest five.

    The state file is changed only when the new files are complete, and old files are removed
    only after that, so that a crash leaves the folder with a good checkpoint.

    Returns:
        The prefix.

    Raises:
        UserError: the files cannot be written.
    """
    step = int(optimizer.iterations.numpy())
    prefix = os.path.join(folder, f"{PREFIX_OF_STEP}{step}")
    tensors = {**named_variables(model), **_named_slots(optimizer)}
    write(
        prefix,
        {
            **{name: variable.value for name, variable in tensors.items()},
            GLOBAL_STEP: np.int64(step),
        },
    )
    kept = [name for name in _names_in_state(folder) if name != os.path.basename(prefix)]
    kept.append(os.path.basename(prefix))
    dropped, kept = kept[:-KEPT_CHECKPOINTS], kept[-KEPT_CHECKPOINTS:]
    lines = [f'model_checkpoint_path: "{kept[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in kept]
    files.write_text(os.path.join(folder, STATE_FILE), "\n".join(lines) + "\n")
    for name in files.list_dir(folder):
        if _SUFFIXES.search(name) and _SUFFIXES.sub("", name) in dropped:
            files.remove(os.path.join(folder, name))
    return prefix


def _names_in_state(folder: str) -> list[str]:
    state = tf.train.get_checkpoint_state(folder)
    paths = state.all_model_checkpoint_paths if state else []
    names = [os.path.basename(path) for path in paths]
    return [name for name in names if files.exists(os.path.join(folder, f"{name}.index"))]


def _named_slots(optimizer: Any) -> dict[str, keras.Variable]:
    return {
        f"{checkpoint_name(variable)}/{slot}": value
        for variable, slots in optimizer.slots()
        for slot, value in slots.items()
    }


def _prefixes_in(folder: str) -> list[str]:
    return [name.removesuffix(".index") for name in files.list_dir(folder) if ".index" in name]


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


def _unreadable(prefix: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return UserError(
        f"Cannot read the checkpoint {prefix}: it is truncated or damaged, copy or download it "
        f"again (TensorFlow says: {reason})"
    )


def _check_fit(prefix: str, model: dict[str, list[int]], stored: dict[str, list[int]]) -> None:
    reshaped = [name for name in model if name in stored and model[name] != stored[name]]
    missing = [name for name in model if name.startswith(_ENCODER_SCOPE) and name not in stored]
    if not reshaped and not missing:
        return
    parts = []
    if reshaped:
        shown = [
            f"{name} (checkpoint {stored[name]}, model {model[name]})" for name in reshaped[:4]
        ]
        more = f" and {len(reshaped) - 4} more" if len(reshaped) > 4 else ""
        parts.append(f"other shapes: {', '.join(shown)}{more}")
    unused = stored.keys() - model.keys()
    parts.append(f"in the model but not in the checkpoint: {summarize(missing)}")
    parts.append(f"in the checkpoint but not in the model: {summarize(unused)}")
    raise UserError(f"The checkpoint {prefix} does not fit the model. {'; '.join(parts)}")
