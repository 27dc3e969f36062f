"""Names and shapes of the encoder's weights, and the configurations that fit them."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bert_tf import checkpoints
from bert_tf.base.errors import UserError, shortened
from bert_tf.config import BertConfig

if TYPE_CHECKING:  # imports Keras
    from bert_tf.modeling import HeadFormat

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
SEGMENT_EMBEDDINGS = "bert/embeddings/token_type_embeddings"
POOLER = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")

# Parts of names in the original.
_NORM = ("LayerNorm/beta", "LayerNorm/gamma")
_DENSE = ("dense/kernel", "dense/bias")
_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings", *_NORM)
_PROJECTIONS = ("query", "key", "value")
_LAYER = (
    *(f"attention/self/{part}/{kind}" for part in _PROJECTIONS for kind in ("kernel", "bias")),
    *(f"attention/output/{kind}" for kind in (*_DENSE, *_NORM)),
    *(f"intermediate/{kind}" for kind in _DENSE),
    *(f"output/{kind}" for kind in (*_DENSE, *_NORM)),
)
# Attention head size of all published models. Weight shapes do not determine it.
USUAL_HEAD_SIZE = 64

_MAX_LIST_CHARS = 400

# Variable name -> shape.
Shapes = Mapping[str, list[int]]

# End of a variable's name -> its shape, in keys of the configuration; the first one counts.
_SHAPES = {
    "word_embeddings": ("vocab_size", "hidden_size"),
    "position_embeddings": ("max_position_embeddings", "hidden_size"),
    "token_type_embeddings": ("type_vocab_size", "hidden_size"),
    "cls/predictions/output_bias": ("vocab_size",),
    "output_weights": ("outputs", "hidden_size"),
    "output_bias": ("outputs",),
    "intermediate/dense/kernel": ("hidden_size", "intermediate_size"),
    "intermediate/dense/bias": ("intermediate_size",),
    "attention/output/dense/kernel": ("hidden_size", "hidden_size"),
    "output/dense/kernel": ("intermediate_size", "hidden_size"),
    "kernel": ("hidden_size", "hidden_size"),
    "": ("hidden_size",),
}


def encoder_names(num_layers: int) -> list[str]:
    """Returns the names of all encoder weights in the original: embeddings, layers and pooler."""
    names = [f"bert/embeddings/{name}" for name in _EMBEDDINGS]
    for index in range(num_layers):
        names += [f"bert/encoder/layer_{index}/{name}" for name in _LAYER]
    return [*names, *POOLER]


def count_layers(names: Iterable[str]) -> int:
    """Returns the largest layer index plus 1, from names as in the original or transformers."""
    names = list(names)
    layers = (re.match(r"bert[/.]encoder[/.]layer[_.](\d+)[/.]", name) for name in names)
    # Never count more layers than names: the index in a damaged file may be huge.
    return min(max((int(layer[1]) + 1 for layer in layers if layer), default=0), len(names))


def infer_sizes(shapes: Shapes) -> dict[str, int]:
    """Infers model sizes from weight shapes, which determine all but the number of heads."""
    sizes: dict[str, int] = {}
    for name in encoder_names(1):
        for axis, size in zip(_axes(name), shapes.get(name, ()), strict=False):
            sizes.setdefault(axis, size)
    num_layers = count_layers(shapes)
    return {**sizes, "num_hidden_layers": num_layers} if num_layers else sizes


def _axes(name: str) -> tuple[str, ...]:
    return next(axes for suffix, axes in _SHAPES.items() if name.endswith(suffix))


def guess_config(shapes: Shapes) -> BertConfig | None:
    """Assumes the usual head size; None if `hidden_size` does not fit it, or sizes are missing."""
    sizes = infer_sizes(shapes)
    num_heads, remainder = divmod(sizes.get("hidden_size", 1), USUAL_HEAD_SIZE)
    if len(sizes) < 6 or remainder:
        return None
    return BertConfig.from_dict({**sizes, "num_attention_heads": num_heads})


def missing_weights(shapes: Shapes, head_variables: Iterable[str] = ()) -> list[str]:
    """Returns what a model lacks of a BERT with this head, apart from the pooler."""
    expected = [*encoder_names(count_layers(shapes) or 1), *head_variables]
    return [name for name in expected if name not in shapes and name not in POOLER]


def check_weights(head: "HeadFormat", shapes: Shapes, path: str) -> None:
    """Raises a UserError if the model at `path` lacks weights, or their shapes are inconsistent."""
    if missing := missing_weights(shapes, head.variables):
        model = "BERT" if head.name == "encoder" else f"BERT with a {head.name} head"
        lacked, found = (checkpoints.summarize(x)[:_MAX_LIST_CHARS] for x in (missing, shapes))
        problem = f"not all weights of {model}. Missing: {lacked}; found: {found}"
        raise UserError(problem, at=path)
    # Heads without labels have two outputs: start and end, or the two classes of next sentence.
    sizes = {**infer_sizes(shapes), "outputs": head.count_outputs(shapes) or 2}
    # Shapes of other heads are not checked: only their classes know them.
    original = [name for name in head.variables if name.startswith(("cls/", "output_"))]
    expected = {
        name: [sizes.get(axis) for axis in _axes(name)]
        for name in [*encoder_names(sizes["num_hidden_layers"]), *original]
    }
    mismatches = [
        f"{name} {shapes[name]} (expected: {shape})"
        for name, shape in expected.items()
        if list(shapes.get(name, shape)) != shape
    ]
    if mismatches:
        raise UserError(f"inconsistent shapes: {shortened(mismatches, 4)}", at=path)
