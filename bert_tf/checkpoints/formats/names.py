"""Names of weights: the original's, and what Hugging Face's transformers calls the same.

The original's names are the common ground of all formats. There a kernel is [input, output], in
PyTorch [output, input]; heads are [labels, H] in both.
"""

import re
from collections.abc import Iterable, Mapping

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
POOLER = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")

_NORM = ("LayerNorm/beta", "LayerNorm/gamma")
_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings", *_NORM)
_LAYER = (
    *(
        f"attention/self/{part}/{kind}"
        for part in ("query", "key", "value")
        for kind in ("kernel", "bias")
    ),
    *(f"attention/output/{kind}" for kind in ("dense/kernel", "dense/bias", *_NORM)),
    *("intermediate/dense/kernel", "intermediate/dense/bias"),
    *(f"output/{kind}" for kind in ("dense/kernel", "dense/bias", *_NORM)),
)
_HEADS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
_LAST = {"kernel": "weight", "gamma": "weight", "beta": "bias"}

# Copies of other tensors, and tables that are computed: they come with some files.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS = "cls.predictions.decoder.bias"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def encoder(num_layers: int) -> list[str]:
    """The original's names of embeddings, layers and pooler."""
    names = [f"bert/embeddings/{name}" for name in _EMBEDDINGS]
    for index in range(num_layers):
        names += [f"bert/encoder/layer_{index}/{name}" for name in _LAYER]
    return [*names, *POOLER]


def count_layers(names: Iterable[str]) -> int:
    """How many encoder layers there are, by the largest number in the original's names."""
    return _count(names, r"bert/encoder/layer_(\d+)/")


def _count(names: Iterable[str], pattern: str) -> int:
    names = list(names)
    found = (re.match(pattern, name) for name in names)
    # A number in a damaged file may be any; there are not more layers than names.
    return min(max((int(layer[1]) + 1 for layer in found if layer), default=0), len(names))


def to_hugging_face(name: str) -> str:
    """The name of a weight there.

    Example: `bert/encoder/layer_3/output/LayerNorm/gamma` is
    `bert.encoder.layer.3.output.LayerNorm.weight`.
    """
    if name in _HEADS:
        return _HEADS[name]
    *scopes, last = name.split("/")
    if last.endswith("_embeddings"):
        return ".".join([*scopes, last, "weight"])
    scopes = [re.sub(r"^layer_(\d+)$", r"layer.\1", scope) for scope in scopes]
    return ".".join([*scopes, _LAST.get(last, last)])


def is_transposed(name: str) -> bool:
    """Whether the rows of a weight of the original are columns there."""
    return name.endswith("/kernel")


class HuggingFaceNames:
    """What the tensors of a safetensors file are called in the original.

    Args:
        found: names in the file. Those of old versions (`LayerNorm.gamma`), and those of a bare
            encoder, without the prefix `bert.`, are understood.

    Attributes:
        stored: the original's names, and what each is called in the file.
        tied: name in the file of a copy of the word embeddings; None where there is none.
        unknown: names in the file that are not BERT's.
    """

    def __init__(self, found: Iterable[str]) -> None:
        modern = {_modern(name): name for name in sorted(found)}
        if not any(name.startswith("bert.") for name in modern):
            inside = ("embeddings.", "encoder.", "pooler.")
            modern = {
                f"bert.{name}" if name.startswith(inside) else name: stored
                for name, stored in modern.items()
            }
        self.tied = modern.pop(_TIED_WEIGHT, None)
        tied_bias = modern.pop(_TIED_BIAS, None)
        if tied_bias:
            modern.setdefault(_HEADS["cls/predictions/output_bias"], tied_bias)
        known = _known(modern)
        self.stored = {known[name]: modern[name] for name in modern if name in known}
        self.unknown = sorted(
            stored
            for name, stored in modern.items()
            if name not in known and not name.endswith(_BUFFERS)
        )


def _modern(name: str) -> str:
    # As TensorFlow calls them, from when the library began.
    return re.sub(r"LayerNorm\.(gamma|beta)$", lambda found: f"LayerNorm.{_LAST[found[1]]}", name)


def _known(modern: Mapping[str, str]) -> dict[str, str]:
    """The original's names by those of the library, for as many layers as there are."""
    count = _count(modern, r"bert\.encoder\.layer\.(\d+)\.")
    transform = [
        f"cls/predictions/transform/{name}" for name in ("dense/kernel", "dense/bias", *_NORM)
    ]
    return {to_hugging_face(name): name for name in [*encoder(count), *transform, *_HEADS]}
