"""Between a model and a checkpoint: what fits, what is restored, what is saved."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import keras
import numpy as np

from bert_tf.checkpoints.folder import add_newest, latest, remove, resolve
from bert_tf.checkpoints.tensors import (
    GLOBAL_STEP,
    on_cpu,
    read,
    read_tensors,
    shapes,
    step_of,
    write,
)
from bert_tf.errors import UserError
from bert_tf.modeling import checkpoint_name

SLOT_NAMES = ("adam_m", "adam_v")
# What training keeps beside weights, slots and step: no model has variables of these names.
EXTRA_NAMES = ("loss_scale",)

_ENCODER_SCOPE = "bert/"


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


class Tensors(Protocol):
    """What a model is restored from, whatever file it is: tensors by the original's names."""

    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of all of them."""
        ...

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values of some, one at a time."""
        ...


def restore(model: keras.Model, prefix: str, tensors: Tensors | None = None) -> Restored:
    """Puts the values of a checkpoint into a model.

    As in the original, a head that the checkpoint lacks keeps its random values, and what only
    the checkpoint has is left; Adam slots and step are never taken. Unlike in the original, an
    encoder that does not fit completely is refused before anything is changed, and so is a
    checkpoint that has nothing for the model.

    Args:
        model: takes the values.
        prefix: of the checkpoint, one of its files, or its folder; a name for messages, with
            `tensors`.
        tensors: where they come from instead.

    Raises:
        UserError: the checkpoint does not fit (with both lists and both shapes) or cannot be
            read.
    """
    if tensors is None:
        prefix = resolve(prefix)
    variables = named_variables(model)
    stored = {
        name: shape
        for name, shape in (tensors.shapes() if tensors else shapes(prefix)).items()
        if name != GLOBAL_STEP and not name.endswith(SLOT_NAMES) and not _is_extra(name)
    }
    _check_fit(prefix, {name: list(v.shape) for name, v in variables.items()}, stored)
    restored = sorted(variables.keys() & stored.keys())
    _assign(variables, prefix, restored, tensors)
    return Restored(
        prefix,
        restored=tuple(restored),
        new=tuple(sorted(variables.keys() - stored.keys())),
        unused=tuple(sorted(stored.keys() - variables.keys())),
    )


def restore_optimizer(optimizer: Any, prefix: str) -> bool:
    """Puts Adam slots and step of a training checkpoint into an optimizer that was built.

    Returns:
        Whether the checkpoint has all slots. Those it lacks (it was stripped, or is a released
        one) stay at zero.

    Raises:
        UserError: a slot has another shape than its variable, or cannot be read.
    """
    stored = shapes(prefix)
    slots = _named_slots(optimizer)
    found = {name: variable for name, variable in slots.items() if name in stored}
    for name, variable in found.items():
        if list(variable.shape) != stored[name]:
            raise UserError(
                f"{name} has the shape {stored[name]} in the checkpoint {prefix}, "
                f"{list(variable.shape)} is needed"
            )
    _assign(found, prefix, found)
    optimizer.iterations.assign(step_of(prefix))
    return len(found) == len(slots)


def restore_extra(variables: Mapping[str, keras.Variable], prefix: str) -> bool:
    """Puts values that `save` took as `extra` back; says whether the checkpoint has them all.

    Raises:
        UserError: the checkpoint cannot be read.
    """
    stored = shapes(prefix)
    found = [name for name in variables if name in stored]
    for name, value in read(prefix, found):
        variables[name].assign(value)
    return len(found) == len(variables)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What a checkpoint of a training holds, as it was at a step; the training may go on.

    On a CPU the values lie where those of the model do, until its next update needs the place:
    from then on, and until the snapshot is dropped, both take memory.

    Attributes:
        step: of the training.
        values: tensors on the CPU, by name.
    """

    step: int
    values: Mapping[str, Any]


def snapshot(
    model: keras.Model, optimizer: Any, extra: Mapping[str, keras.Variable] | None = None
) -> Snapshot:
    """Weights, Adam slots and step of a training.

    Args:
        model: its weights are taken.
        optimizer: its slots and its step are taken.
        extra: more variables, by names that begin with one of `EXTRA_NAMES`.
    """
    variables = {**named_variables(model), **_named_slots(optimizer), **(extra or {})}
    values = {name: on_cpu(variable.value) for name, variable in variables.items()}
    return Snapshot(int(optimizer.iterations.numpy()), values)


def save(
    folder: str,
    model: keras.Model,
    optimizer: Any,
    extra: Mapping[str, keras.Variable] | None = None,
) -> str:
    """Writes a `snapshot` at once; see `save_snapshot`."""
    return save_snapshot(folder, snapshot(model, optimizer, extra))


def save_snapshot(folder: str, found: Snapshot) -> str:
    """Writes `model.ckpt-<step>` with Adam slots and step, and keeps the newest five.

    Args:
        folder: the training's.
        found: what is written.

    Returns:
        The prefix.

    Raises:
        UserError: the files cannot be written.
    """
    name = f"model.ckpt-{found.step}"
    prefix = os.path.join(folder, name)
    try:
        write(prefix, {**found.values, GLOBAL_STEP: np.int64(found.step)})
    except UserError as error:
        kept = latest(folder)
        if kept != prefix:
            remove(folder, name)
        raise UserError(f"{error}. The last good checkpoint is {kept}") from error
    add_newest(folder, name)
    return prefix


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model that belong into a checkpoint, by name.

    Those of a frozen layer do, states of random generators, which are integers, do not.
    """
    return {
        checkpoint_name(variable): variable
        for variable in model.variables
        if "float" in variable.dtype
    }


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


def _check_fit(prefix: str, model: dict[str, list[int]], stored: dict[str, list[int]]) -> None:
    reshaped = [name for name in model if name in stored and model[name] != stored[name]]
    absent = [name for name in model if name not in stored]
    missing = [name for name in absent if name.startswith(_ENCODER_SCOPE)]
    if len(absent) == len(model):
        missing = absent
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
    if missing:
        parts.append(f"in the model but not in the checkpoint: {summarize(missing)}")
    if unused:
        parts.append(f"in the checkpoint but not in the model: {summarize(unused)}")
    of_encoder = missing or any(name.startswith(_ENCODER_SCOPE) for name in reshaped)
    if len(absent) == len(model):
        advice = "It is of another model, or its variables have other names"
    elif of_encoder:
        advice = "Its configuration is another one than --bert_config_file"
    else:
        advice = (
            "It was trained with another number of outputs: on other labels, for instance. "
            "convert_checkpoint.py --head=encoder takes its encoder alone"
        )
    raise UserError(f"The checkpoint {prefix} does not fit the model. {'; '.join(parts)}. {advice}")


def _assign(
    variables: Mapping[str, keras.Variable],
    prefix: str,
    names: Iterable[str],
    tensors: Tensors | None = None,
) -> None:
    for name, value in tensors.read(names) if tensors else read_tensors(prefix, names):
        # Of a tensor this is a view.
        array = np.asarray(value)
        # bfloat16 is a number type that NumPy does not know by itself: it counts as no kind.
        if (
            array.dtype.kind not in "fV"
            or not np.isfinite(array.astype(np.float32, copy=False)).all()
        ):
            raise UserError(
                f"{name} in the checkpoint {prefix} is not made of finite numbers "
                f"({array.dtype}): the checkpoint is of no use"
            )
        variables[name].assign(value)


def _is_extra(name: str) -> bool:
    return name.split("/")[0] in EXTRA_NAMES


def _named_slots(optimizer: Any) -> dict[str, keras.Variable]:
    return {
        f"{checkpoint_name(variable)}/{slot}": value
        for variable, slots in optimizer.slots()
        for slot, value in slots.items()
    }
