"""Checks of the inputs of models."""

import difflib
import sys
from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.config import BertConfig

_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Our names, and those of other programs.
_NAMES = {
    **{name: name for name in _INPUTS},
    **dict.fromkeys(("input_word_ids", "token_ids"), "input_ids"),
    **dict.fromkeys(("attention_mask", "padding_mask", "mask"), "input_mask"),
    **dict.fromkeys(("input_type_ids", "token_type_ids"), "segment_ids"),
}
_SIMILARITY = 0.85


def check_inputs(inputs: Any, config: BertConfig, rank: int = 2) -> None:
    """Checks names and shapes, and the values of eager inputs; adds nothing to a graph."""
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        received = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise ValueError(f'inputs must be a dict, {{"input_ids": ids, ...}}. Received: {received}')
    for name in inputs.keys() - set(_INPUTS):
        for similar in difflib.get_close_matches(str(name).lower(), _NAMES, 1, _SIMILARITY):
            raise ValueError(f"The input {name!r} is called {_NAMES[similar]!r} here")
    ids_shape = getattr(inputs["input_ids"], "shape", None)
    sizes = (config.vocab_size, 2, config.type_vocab_size)
    for name, size in zip(_INPUTS, sizes, strict=True):
        value = inputs.get(name)
        if value is None:
            continue
        shape, kind = (getattr(value, key, None) for key in ("shape", "dtype"))
        is_other = name == "input_ids" and any(x in str(kind) for x in ("float", "str", "U"))
        if shape is None or is_other:
            kind = kind or type(value).__name__
            raise ValueError(f"{name} must be an array or a tensor of integers. Received: {kind}")
        # Dimensions of symbolic tensors may be None or symbols, and so may the rank.
        if getattr(shape, "rank", 2) is not None:
            pairs = zip(shape, ids_shape or (), strict=False)
            if len(shape) != rank or any({type(a), type(b)} == {int} and a != b for a, b in pairs):
                expected = "[B, S]" if rank == 2 else "[B, C, S]"
                expected = expected if name == "input_ids" else f"of input_ids, {tuple(ids_shape)}"
                raise ValueError(f"{name} must have the shape {expected}. Received: {tuple(shape)}")
        for extreme in _extremes(value):
            if not 0 <= extreme < size:
                raise ValueError(f"{name} must be from 0 to {size - 1}. Received: {extreme}")


def _extremes(ids: Any) -> tuple:
    """Returns the smallest and the largest value; () for a symbolic tensor."""
    torch = sys.modules.get("torch")
    if torch and torch.compiler.is_compiling():
        return ()
    try:
        values = ops.convert_to_numpy(ids)
        return values.min(initial=0), values.max(initial=0)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return ()
