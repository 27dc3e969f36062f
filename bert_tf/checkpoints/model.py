"""Restores models and optimizers from checkpoints, and saves them."""

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.base import backend
from bert_tf.base.errors import UserError, brief, counted, note, shortened, warn
from bert_tf.checkpoints.folder import MAX_TO_KEEP, add_newest, latest, remove, resolve
from bert_tf.checkpoints.formats.configs import POOLER
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.run_folder import TARGET_SCALE, RunFolder
from bert_tf.checkpoints.tensors import GLOBAL_STEP, non_finite, read, shapes, step_of, write
from bert_tf.modeling import BertModel, checkpoint_name

_ENCODER_SCOPE = "bert/"
# Names of scalars of optimizers and of loss scaling; a head may have scalars of its own.
_STATE = re.compile(r"step|loss_scale|iter|power|decay|momentum|learning_rate")
_ENCODER_PART = re.compile(r"(^|/)(embeddings|encoder|pooler)/")
_PRETRAINING_HEADS = ("cls/predictions/", "cls/seq_relationship/")
_LAYER_NUMBER = re.compile(r"(?<=bert/encoder/layer_)\d+(?=/)")


@dataclasses.dataclass(frozen=True)
class Restored:
    """The result of `load_weights`; variables are given by name, in sorted order.

    Attributes:
        prefix: prefix of the checkpoint.
        restored: variables in both the model and the checkpoint.
        new: variables only in the model; they keep their initial values.
        unused: variables only in the checkpoint, except `training_state`.
    """

    prefix: str
    restored: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self) -> str:
        """Returns a one-line summary; it lists variables unless only the head is new or unused."""
        others = [*self.new, *self.unused]
        has_head = not all(map(_ENCODER_PART.search, self.restored))
        is_other = has_head or not all(n.startswith(_PRETRAINING_HEADS) for n in self.unused)
        if not any(map(_ENCODER_PART.search, others)) and not (self.new and is_other):
            part = " of the encoder" if others and not has_head else ""
            return f"Weights{part} from {self.prefix}{'; new head' if self.new else ''}"
        groups = {"Randomly initialized": self.new, "In the checkpoint but not used": self.unused}
        texts = [f"{title}: {summarize(names)}" for title, names in groups.items() if names]
        count = counted(len(self.restored), "variable")
        return ". ".join([f"{count} restored from {self.prefix}", *texts])

    def require_exact(
        self,
        advice: str = ". If the model has not been fine-tuned for this task, pass --do_train=true",
    ) -> None:
        """Raises a UserError unless model and checkpoint have the same variables.

        `advice` is appended if the checkpoint lacks variables.
        """
        if self.new or self.unused:
            missing, unexpected = map(summarize, (self.new, self.unused))
            raise UserError(
                f"{self.prefix} does not match this model. Missing variables: {missing}; "
                f"unexpected variables: {unexpected}{advice if self.new else ''}"
            )


def fold_target_scale(model: keras.Model, folder: RunFolder) -> None:
    """Changes a regression model whose targets were standardized: `logits` are in their own unit.

    The model must have the weights of the checkpoint in the folder.
    """
    variables = named_variables(model)
    for name, value in unscaled_head(variables, folder).items():
        variables[name].assign(value)


def unscaled_head(weights: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """Returns a regression's head such that its outputs have the unit of the labels.

    It is empty if the run in the folder did not standardize them, or if `weights` has no head.
    """
    pairs = folder.entry(TARGET_SCALE)
    name = next((name for name in weights if name.endswith("output_weights")), None)
    if not pairs or not name:
        return {}
    names = name, name.replace("output_weights", "output_bias")
    mean, scale = np.array(json.loads(pairs), np.float32).T
    kernel, bias = (np.asarray(weights[name]) for name in names)
    return {names[0]: kernel * scale[:, None], names[1]: bias * scale + mean}


def follow_labels(model: keras.Model, source: Source, labels: Sequence[str]) -> None:
    """Gives each label the output that it had in `source`, from which the head was loaded.

    Labels are compared without case. Only warns if they are as many, but others.
    """
    trained = source.labels or []
    old, new = ([label.casefold() for label in names] for names in (trained, labels))
    if len(old) == len(new) and {*old} != {*new}:
        was, now = (shortened(brief(x)) for x in (trained, labels))
        warn(f"the labels of its head were {was}; now, they are {now}", at=source.path)
    elif sorted(old) == sorted(new) and old != new:
        order = [old.index(label) for label in new]
        note(f"its head is loaded in a new order, {shortened(brief(labels))}", at=source.path)
        for name, variable in named_variables(model).items():
            if name.endswith(("output_weights", "output_bias")):
                variable.assign(np.asarray(variable)[order])


def load_weights(
    model: keras.Model,
    source: str | os.PathLike | Source,
    layers: Sequence[int] = (),
    verify: bool = True,
) -> Restored:
    """Loads a model's weights; logs the source's notes and unused layers as warnings.

    `source` is the prefix, file or folder of an original checkpoint, or a `Source` of any format.
    With `layers`, layer n of the model gets the weights of layer `layers[n]` of the source.
    Messages and the result use the source's names. Without `layers`, `verify` calls
    `require_same_outputs`. A pooler that the source lacks is zero, unless the head reads it.
    """
    if isinstance(source, str | os.PathLike):
        source = OriginalSource(resolve(os.fspath(source)))
    source.log_notes()
    prefix, stored = source.path, source.shapes()
    variables = named_variables(model)
    if layers:
        variables = {
            _LAYER_NUMBER.sub(lambda number: str(layers[int(number[0])]), name): variable
            for name, variable in variables.items()
        }
        # The other layers of the source are left out on purpose: do not report them as unused.
        stored = {
            name: shape
            for name, shape in stored.items()
            if name in variables or not _LAYER_NUMBER.search(name)
        }
    state = training_state(stored) - variables.keys()
    stored = {name: shape for name, shape in stored.items() if name not in state}
    _check_fit(prefix, variables, stored)
    restored = sorted(variables.keys() & stored.keys())
    _assign(variables, prefix, source.read(restored))
    new = variables.keys() - stored.keys()
    if not getattr(model, "trains_pooler", False):
        for name in new.intersection(POOLER):
            variables[name].assign(np.zeros(variables[name].shape))
        new -= {*POOLER}
    unused = sorted(stored.keys() - variables.keys())
    if layers_left := [name for name in unused if name.startswith("bert/encoder/")]:
        warn(f"has more layers than the configuration; unused: {summarize(layers_left)}", at=prefix)
    if verify and not layers:
        source.require_same_outputs(model.config)
    return Restored(prefix, tuple(restored), new=tuple(sorted(new)), unused=tuple(unused))


def restore_training_state(state: Any, prefix: str) -> None:
    """Restores a `TrainState`: Adam slots and step of its optimizer, and its extra variables.

    Variables that the checkpoint lacks keep their values. Warns if it lacks slots, as published
    checkpoints do.
    """
    stored, extra = shapes(prefix), state.extra_variables
    slots = _named_slots(state.optimizer)
    present = {name: variable for name, variable in slots.items() if name in stored}
    _check_fit(prefix, present, stored)
    _assign(present, prefix, read(prefix, present))
    state.optimizer.iterations.assign(step_of(prefix))
    for name, value in read(prefix, extra.keys() & stored.keys()):
        extra[name].assign(value)
    if missing := len(slots) - len(present):
        warn(f"{prefix} lacks {missing} of {len(slots)} Adam slots, which start from zero")


def snapshot(
    model: keras.Model, optimizer: Any, extra: Mapping[str, keras.Variable] | None = None
) -> dict[str, Any]:
    """Returns weights, Adam slots, step and `extra` variables, by name.

    The tensors are on the CPU, and later training steps do not change them. If the model is also
    on the CPU, the tensors share its memory until the next update, which allocates new memory.
    """
    variables = {**named_variables(model), **_named_slots(optimizer), **(extra or {})}
    with backend.tf.device("/cpu:0"):
        values = {n: backend.tf.convert_to_tensor(v.value) for n, v in variables.items()}
        copies = {name: backend.tf.identity(value) for name, value in values.items()}
    return {**copies, GLOBAL_STEP: np.int64(optimizer.iterations.numpy())}


def save_snapshot(folder: str, tensors: Mapping[str, Any], max_to_keep: int = MAX_TO_KEEP) -> str:
    """Writes `model.ckpt-<step>` and returns its prefix; for `max_to_keep`, see `add_newest`."""
    name = f"model.ckpt-{tensors[GLOBAL_STEP]}"
    prefix = os.path.join(folder, name)
    try:
        write(prefix, tensors)
    except UserError as error:
        last_good = latest(folder)
        if last_good != prefix:
            remove(folder, name)
        error.fix = f"Last good checkpoint: {last_good or 'none'}"
        raise
    add_newest(folder, name, max_to_keep)
    return prefix


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns a model's weights by checkpoint name, without the states of random generators."""
    # An encoder beside another one has a name of its own.
    scope = f"{model.name}/" if isinstance(model, BertModel) else _ENCODER_SCOPE
    floats = [variable for variable in model.variables if "float" in variable.dtype]
    return {re.sub(f"^{re.escape(scope)}", _ENCODER_SCOPE, checkpoint_name(v)): v for v in floats}


def training_state(shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """Returns the names of what is no weight: slots and averages, and scalars such as the step.

    The former begin with the name of a variable, as `output_bias/Adam_1` does.
    """

    def is_state(name: str) -> bool:
        scopes = itertools.accumulate(name.split("/")[:-1], "{}/{}".format)
        is_scalar = not len(shapes[name]) and bool(_STATE.search(name))
        return is_scalar or any(scope in shapes for scope in scopes)

    return {*filter(is_state, shapes)}


def summarize(names: Iterable[str]) -> str:
    """Lists variables in a message: one entry per scope, and one for all encoder layers.

    Example: `bert/embeddings (5), bert/encoder/layer_0..11 (192), output_bias, output_weights`.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(_group(name), []).append(name)
    summaries = []
    for key, members in groups.items():
        if key.endswith("layer_"):
            layers = [int(number) for name in members for number in _LAYER_NUMBER.findall(name)]
            key += "..".join(map(str, sorted({min(layers), max(layers)})))
        summaries.append(members[0] if len(members) == 1 else f"{key} ({len(members)})")
    return ", ".join(summaries) or "none"


def _group(name: str) -> str:
    match = _LAYER_NUMBER.search(name)
    return name[: match.start()] if match else "/".join(name.split("/")[:2])


def _check_fit(
    prefix: str, variables: Mapping[str, keras.Variable], stored: dict[str, list[int]]
) -> None:
    """Raises a UserError if shapes differ, or `stored` lacks encoder variables or all variables."""
    expected = {name: list(variable.shape) for name, variable in variables.items()}
    reshaped = [name for name in expected if stored.get(name, expected[name]) != expected[name]]
    absent = [name for name in expected if name not in stored and name not in POOLER]
    is_unrelated = len(absent) == len(expected.keys() - {*POOLER})
    missing = [name for name in absent if is_unrelated or name.startswith(_ENCODER_SCOPE)]
    if not reshaped and not missing:
        return
    listed = [f"{name} (checkpoint {stored[name]}, model {expected[name]})" for name in reshaped]
    others = sorted(stored.keys() - expected)
    groups = {
        "different shapes": listed,
        "only in the model": sorted(missing),
        "only in the checkpoint": others if missing else [],
    }
    parts = [f"{title}: {shortened(names, 4)}" for title, names in groups.items() if names]
    advice = "Pass the --bert_config_file that it was trained with"
    if not (missing or any(name.startswith(_ENCODER_SCOPE) for name in reshaped)):
        advice = "Its head differs. convert_checkpoint.py --head=encoder extracts the encoder"
    raise UserError(f"Checkpoint {prefix} does not fit the model ({'; '.join(parts)})", fix=advice)


def _assign(
    variables: Mapping[str, keras.Variable], prefix: str, values: Iterable[tuple[str, np.ndarray]]
) -> None:
    for name, value in values:
        is_float = value.dtype.kind in "fV"
        problem = non_finite(name, value) if is_float else f"{name} has type {value.dtype}"
        if problem:
            raise UserError(problem, at=prefix)
        variables[name].assign(value)


def _named_slots(optimizer: Any) -> dict[str, keras.Variable]:
    return {
        f"{checkpoint_name(variable)}/{slot}": value
        for variable, slots in optimizer.slots()
        for slot, value in slots.items()
    }
