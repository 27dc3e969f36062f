"""Derives sizes from the shapes of weights, and checks configurations against them."""

import contextlib
from collections.abc import Mapping

from bert_tf import checkpoints
from bert_tf.checkpoints.formats import names
from bert_tf.checkpoints.formats.heads import Head
from bert_tf.checkpoints.formats.source import Source
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, shortened
from bert_tf.progress import log

# The width of attention heads in all published models. Weights do not tell it.
USUAL_HEAD_SIZE = 64

# Longest list of variables in a message, in characters.
_MAX_LIST = 400

Shapes = Mapping[str, list[int]]

_AXES = {
    "vocab_size": (names.WORD_EMBEDDINGS, 0),
    "hidden_size": (names.WORD_EMBEDDINGS, 1),
    "intermediate_size": ("bert/encoder/layer_0/intermediate/dense/bias", 0),
    "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
    "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
}


def sizes_of(shapes: Shapes) -> dict[str, int]:
    """Returns the sizes in a configuration that the weights tell: all but the attention heads."""
    sizes = {
        key: shapes[name][axis]
        for key, (name, axis) in _AXES.items()
        if name in shapes and len(shapes[name]) > axis
    }
    layers = names.count_layers(shapes)
    return {**sizes, "num_hidden_layers": layers} if layers else sizes


def guess_config(shapes: Shapes) -> BertConfig | None:
    """Returns a configuration with the usual head width and rates; None if the sizes do not fit."""
    sizes = sizes_of(shapes)
    heads = sizes.get("hidden_size", 1) // USUAL_HEAD_SIZE
    if len(sizes) < 6 or heads * USUAL_HEAD_SIZE != sizes["hidden_size"]:
        return None
    return BertConfig.from_dict({**sizes, "num_attention_heads": heads})


def check_config(config: BertConfig, shapes: Shapes, file: str, weights: str) -> None:
    """Raises a UserError if configuration and weights differ; `file` and `weights` are paths."""
    wrong = []
    for key, size in sizes_of(shapes).items():
        configured = getattr(config, key)
        if configured != size:
            variable = f" ({_AXES[key][0]} {shapes[_AXES[key][0]]})" if key in _AXES else ""
            wrong.append(f"{key} is {configured} there, {size} in the weights{variable}")
    if wrong:
        problem = f"{file} is not the configuration of {weights}: {'; '.join(wrong)}"
        raise UserError(f"{problem}. Pass the one that the model was trained with")


def warn_of_other_config(config: BertConfig, file: str, source: Source) -> None:
    """Warns if results would not be those of a model, for what its weights do not tell."""
    own = None
    with contextlib.suppress(UserError):
        own = source.config() if file != source.config_file else None
    for name in ("num_attention_heads", "hidden_act") if own else ():
        ours, theirs = getattr(config, name), getattr(own, name)
        if str(ours).lower() != str(theirs).lower():
            message = "%s: %s is %s, but beside %s it is %s. Check --bert_config_file"
            log.warning(message, file, name, ours, source.path, theirs)


def check_weights(head: Head, shapes: Shapes, weights: str) -> None:
    """Raises a UserError if weights of a model are missing or their shapes do not match."""
    sizes = sizes_of(shapes)
    expected = head.expected(names.count_layers(shapes) or 1)
    missing = [name for name in expected if name not in shapes]
    if missing:
        of_head = "" if head.name == "encoder" else f" with the head {head.name}"
        absent, there = (checkpoints.summarize(group)[:_MAX_LIST] for group in (missing, shapes))
        problem = f"Missing: {absent}; there are {there}"
        raise UserError(f"{weights} does not have all weights of a BERT{of_head}. {problem}")
    if len(sizes) <= len(_AXES):
        shown = ", ".join(f"{name} {shapes[name]}" for name, _ in _AXES.values())
        raise UserError(f"The shapes of {weights} are not BERT's: {shown}")
    outputs = [*shapes["output_bias"], 2][0] if head.has_labels else 2
    needed = _expected_shapes(head, sizes, outputs)
    wrong = [name for name, shape in needed.items() if list(shapes[name]) != shape]
    if wrong:
        shown = [f"{name} {shapes[name]} (needed: {needed[name]})" for name in wrong]
        raise UserError(f"Weights of {weights} do not fit each other: {shortened(shown, 4)}")


def _expected_shapes(head: Head, sizes: Mapping[str, int], outputs: int) -> dict[str, list[int]]:
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    # By the ending of the name; the first match counts.
    by_ending = {
        "word_embeddings": [sizes["vocab_size"], hidden],
        "position_embeddings": [sizes["max_position_embeddings"], hidden],
        "token_type_embeddings": [sizes["type_vocab_size"], hidden],
        "cls/predictions/output_bias": [sizes["vocab_size"]],
        "output_weights": [outputs, hidden],
        "output_bias": [outputs],
        "intermediate/dense/kernel": [hidden, inner],
        "intermediate/dense/bias": [inner],
        "attention/output/dense/kernel": [hidden, hidden],
        "output/dense/kernel": [inner, hidden],
        "kernel": [hidden, hidden],
        "": [hidden],
    }
    return {
        name: next(shape for ending, shape in by_ending.items() if name.endswith(ending))
        for name in head.expected(sizes["num_hidden_layers"])
    }
