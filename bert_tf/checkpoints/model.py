"""Restores models and optimizers from checkpoints, and saves them."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import backend
from bert_tf.checkpoints.folder import MAX_TO_KEEP, add_newest, latest, remove, resolve
from bert_tf.checkpoints.formats.source import OriginalSource, Source
from bert_tf.checkpoints.tensors import GLOBAL_STEP, read, shapes, step_of, write
from bert_tf.errors import UserError, shortened
from bert_tf.modeling import checkpoint_name
from bert_tf.progress import log

SLOT_NAMES = ("adam_m", "adam_v")
# Training state besides slots and step, stored under names that no model variable has.
EXTRA_NAMES = ("loss_scale",)

_ENCODER_SCOPE = "bert/"
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_LAYER_NUMBER = re.compile(r"(?<=bert/encoder/layer_)\d+(?=/)")


@dataclasses.dataclass(frozen=True)
class Restored:
    """The result of `load_weights`; variables are given by name, in sorted order.

    Attributes:
        prefix: prefix of the checkpoint.
        restored: variables in both the model and the checkpoint.
        new: variables only in the model; they keep their initial values.
        unused: variables only in the checkpoint, except training state (`is_training_state`).
    """

    prefix: str
    restored: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self) -> str:
        """Returns a one-line summary."""
        groups = {"Randomly initialized": self.new, "In the checkpoint but not used": self.unused}
        texts = [f"{title}: {summarize(names)}" for title, names in groups.items() if names]
        count = len(self.restored)
        return ". ".join([f"{count} variables restored from {self.prefix}", *texts])

    def require_exact(
        self,
        advice: str = ". If it was not fine-tuned for this task, train it first (--do_train=true)",
    ) -> None:
        """Raises a UserError unless model and checkpoint have the same variables.

        `advice` ends the message about variables that the checkpoint lacks.
        """
        if self.new or self.unused:
            missing, unexpected = map(summarize, (self.new, self.unused))
            raise UserError(
                f"{self.prefix} does not match this model. Missing variables: {missing}; "
                f"unexpected variables: {unexpected}{advice if self.new else ''}"
            )


def load_weights(
    model: keras.Model,
    source: str | os.PathLike | Source,
    layers: Sequence[int] = (),
    verify: bool = True,
) -> Restored:
    """Loads a model's weights; logs the source's notes and unused layers as warnings.

    `source` is the prefix, file or folder of an original checkpoint, or a `Source` of any format.
    With `layers`, layer n of the model gets the weights of layer `layers[n]` of the source, whose
    variable names are then used in messages and in the result. Without `layers`, `verify` raises a
    UserError if the source can be run and its outputs differ from those of a BERT model.
    """
    if isinstance(source, str | os.PathLike):
        source = OriginalSource(resolve(os.fspath(source)))
    for note in source.notes:
        log.warning("%s", note)
    prefix, stored = source.path, source.shapes()
    stored = {name: shape for name, shape in stored.items() if not is_training_state(name)}
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
    _check_fit(prefix, _shapes(variables), stored)
    restored = sorted(variables.keys() & stored.keys())
    _assign(variables, prefix, source.read(restored))
    unused = sorted(stored.keys() - variables.keys())
    if unused_layers := [name for name in unused if name.startswith("bert/encoder/")]:
        message = "The checkpoint has more layers than the configuration; unused: %s"
        log.warning(message, summarize(unused_layers))
    if verify and not layers:
        source.require_same_outputs(model.config)
    new = sorted(variables.keys() - stored.keys())
    return Restored(prefix, restored=tuple(restored), new=tuple(new), unused=tuple(unused))


def restore_training_state(state: Any, prefix: str) -> None:
    """Restores a `TrainState`: Adam slots and step of its optimizer, and its extra variables.

    What the checkpoint lacks keeps its value. Warns if it lacks slots, as published checkpoints do.
    """
    stored, extra = shapes(prefix), state.extra_variables
    slots = _named_slots(state.optimizer)
    present = {name: variable for name, variable in slots.items() if name in stored}
    for name, shape in _shapes(present).items():
        if shape != stored[name]:
            raise UserError(f"{name} in {prefix} has shape {stored[name]}; expected {shape}")
    _assign(present, prefix, read(prefix, present))
    state.optimizer.iterations.assign(step_of(prefix))
    for name, value in read(prefix, extra.keys() & stored.keys()):
        extra[name].assign(value)
    if len(present) < len(slots):
        log.warning(
            "%s has no Adam slots; the moments start from zero. To start a new training run from "
            "it, pass it as --init_checkpoint with an empty --output_dir",
            prefix,
        )


def snapshot(
    model: keras.Model, optimizer: Any, extra: Mapping[str, keras.Variable] | None = None
) -> dict[str, Any]:
    """Returns weights, Adam slots, step and `extra` variables (see `EXTRA_NAMES`), by name.

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
        raise UserError(f"{error}. Last good checkpoint: {last_good or 'none'}") from error
    add_newest(folder, name, max_to_keep)
    return prefix


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns a model's weights by checkpoint name, without the states of random generators."""
    variables = [variable for variable in model.variables if "float" in variable.dtype]
    return {checkpoint_name(variable): variable for variable in variables}


def _shapes(variables: Mapping[str, keras.Variable]) -> dict[str, list[int]]:
    return {name: list(variable.shape) for name, variable in variables.items()}


def is_training_state(name: str) -> bool:
    """Returns whether a variable is training state (Adam slot, step, loss scale), not a weight."""
    parts = name.split("/")
    return name == GLOBAL_STEP or parts[-1] in SLOT_NAMES or parts[0] in EXTRA_NAMES


def summarize(names: Iterable[str]) -> str:
    """Lists variables in a message: one entry per scope, and one for all encoder layers.

    Example: `bert/embeddings (5), bert/encoder/layer_0..11 (192), output_bias, output_weights`.
    """
    groups: dict[str, list[str]] = {}
    layers: list[int] = []
    for name in sorted(names):
        match = re.match(r"(bert/encoder/layer_)(\d+)/", name)
        layers += [int(match[2])] if match else []
        key = match[1] if match else "/".join(name.split("/")[:2])
        groups.setdefault(key, []).append(name)
    summaries = []
    for key, members in groups.items():
        if key.endswith("layer_"):
            key += "..".join(map(str, sorted({min(layers), max(layers)})))
        summaries.append(members[0] if len(members) == 1 else f"{key} ({len(members)})")
    return ", ".join(summaries) or "none"


def _check_fit(prefix: str, model: dict[str, list[int]], stored: dict[str, list[int]]) -> None:
    """Raises a UserError if variables have different shapes, or if too many are not stored."""
    reshaped = [name for name in model if stored.get(name, model[name]) != model[name]]
    absent = [name for name in model if name not in stored]
    is_unrelated = len(absent) == len(model)
    missing = [name for name in absent if is_unrelated or name.startswith(_ENCODER_SCOPE)]
    if not reshaped and not missing:
        return
    listed = [f"{name} (checkpoint {stored[name]}, model {model[name]})" for name in reshaped]
    parts = [f"different shapes: {shortened(listed, 4)}"] if listed else []
    sides = {"only in the model": missing}
    sides["only in the checkpoint"] = [name for name in stored if name not in model]
    parts += [f"{side}: {summarize(names)}" for side, names in sides.items() if names]
    if is_unrelated:
        advice = "It belongs to a different model, or its variables have different names"
    elif missing or any(name.startswith(_ENCODER_SCOPE) for name in reshaped):
        advice = "Pass the --bert_config_file that it was trained with"
        width, expected = (sizes.get(_WORD_EMBEDDINGS, [0])[-1] for sizes in (stored, model))
        if width and expected and width != expected:
            advice = f"Its hidden_size is {width}, and the model's is {expected}. {advice}"
    else:
        advice = "Its head differs. convert_checkpoint.py --head=encoder extracts the encoder"
    raise UserError(f"Checkpoint {prefix} does not fit the model ({'; '.join(parts)}). {advice}")


def _assign(
    variables: Mapping[str, keras.Variable], prefix: str, values: Iterable[tuple[str, np.ndarray]]
) -> None:
    for name, value in values:
        # NumPy's kind of bfloat16 is "V".
        is_float = value.dtype.kind in "fV"
        if not is_float or not np.isfinite(value.astype(np.float32, copy=False)).all():
            problem = f"has values that are not finite numbers ({value.dtype})"
            raise UserError(f"{name} in the checkpoint {prefix} {problem}")
        variables[name].assign(value)


def _named_slots(optimizer: Any) -> dict[str, keras.Variable]:
    return {
        f"{checkpoint_name(variable)}/{slot}": value
        for variable, slots in optimizer.slots()
        for slot, value in slots.items()
    }
