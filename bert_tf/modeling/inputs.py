"""Validates model inputs."""

import difflib
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from keras import KerasTensor, ops

from bert_tf.base.errors import warn
from bert_tf.base.foreign_names import advice_of
from bert_tf.config import BertConfig

_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Similarity (0 to 1) to a known name from which an unknown name counts as a typo.
_CUTOFF = 0.85


@functools.cache  # AutoGraph, which cannot transform difflib, does not enter cached functions
def _meant(name: str) -> str:
    """Returns the input that a foreign or misspelled name means; "" if there is none."""
    close = difflib.get_close_matches(name, (*_INPUTS, "token_type_ids"), 1, _CUTOFF)
    return advice_of(["input"], [*close, name][0]) or "".join(close)


def check_inputs(
    inputs: Any, config: BertConfig, rank: int = 2, names: Sequence[str] = _INPUTS
) -> None:
    """Raises a ValueError for wrong names or shapes and, in eager tensors, out-of-range values.

    `names` are those of the model's inputs; all are required, except for mask and segment ids.
    """
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        received = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        expected = 'a dict {"input_ids": ids, ...}, such as bert_tf.encode(texts, folder) returns'
        raise ValueError(f"inputs must be {expected}. Received: {received}")
    for name in inputs.keys() - set(_INPUTS):
        if meant := _meant(str(name).lower()):
            raise ValueError(f"Unknown input {name!r}: use {meant!r}")
    for name in {*names} - {*_INPUTS} - inputs.keys():
        raise ValueError(f"The input {name!r} is missing. Received: {', '.join(inputs)}")
    ids_shape = getattr(inputs["input_ids"], "shape", None)
    num_values = (config.vocab_size, 2, config.type_vocab_size)
    for name, size in zip(_INPUTS, num_values, strict=True):
        value = inputs.get(name)
        if value is None:
            continue
        shape, dtype = (getattr(value, key, None) for key in ("shape", "dtype"))
        # Dtypes of strings contain "U" (NumPy) or "str". Masks and segments may be floats.
        is_bad_type = name == "input_ids" and any(x in str(dtype) for x in ("float", "str", "U"))
        if shape is None or is_bad_type:
            kind = dtype or type(value).__name__
            raise ValueError(f"{name} must be an integer array or tensor. Received: {kind}")
        # Symbolic tensors may have an unknown rank, or dimensions that are None or symbols.
        if getattr(shape, "rank", 2) is not None:
            sizes = zip(shape, ids_shape or (), strict=False)
            differs = any({type(a), type(b)} == {int} and a != b for a, b in sizes)
            if len(shape) != rank or shape[-1] == 0 or differs:
                expected = "[B, S]" if rank == 2 else "[B, C, S]"
                if name != "input_ids":
                    expected = f"of input_ids, {tuple(ids_shape or ())}"
                raise ValueError(f"{name} must have the shape {expected}. Received: {tuple(shape)}")
        values = _check_range(name, value, size)
        if name == "input_mask" and values is not None and not values[..., 0].any():
            warn("input_mask is 0 at the first token of all rows: 0 stands for padding")


def check_positions(positions: Any, ids_shape: Any) -> None:
    """Raises a ValueError if positions [B, P] are out of range, or are a mask [B, S] instead."""
    values = _check_range("masked_lm_positions", positions, ids_shape[-1])
    if values is None:
        return
    is_mask = values.shape == tuple(ids_shape) and values.max() < 2 < values.shape[-1]
    if is_mask or values.dtype == bool:
        raise ValueError("masked_lm_positions must be the indexes of tokens, [B, P], not a mask")


def _check_range(name: str, ids: Any, size: int) -> Any:
    """Returns the values of an eager tensor, from 0 to `size` - 1; None if it is symbolic or empty.

    Raises a ValueError if a value is out of range.
    """
    torch = sys.modules.get("torch")
    is_traced = torch and torch.compiler.is_compiling()
    # The tensors of a `tf.function` have a graph. NumPy would warn about symbolic tensors.
    if is_traced or isinstance(ids, KerasTensor) or hasattr(ids, "graph"):
        return None
    try:
        values = ops.convert_to_numpy(ids)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    if not values.size:
        return None
    for extreme in (values.min(), values.max()):
        if not 0 <= extreme < size:
            raise ValueError(f"{name} must be between 0 and {size - 1}. Received: {extreme}")
    return values


def flatten_texts(inputs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns inputs [B, C, S] with the prefix as those of the encoder, [B * C, S], if any."""
    texts = {n.removeprefix(prefix): inputs[n] for n in inputs if n.startswith(prefix)}
    # `token_positions` are already those of the flattened texts.
    return {
        n: ops.reshape(x, (-1, ops.shape(x)[-1])) if len(x.shape) == 3 else x
        for n, x in texts.items()
        if x is not None
    }
