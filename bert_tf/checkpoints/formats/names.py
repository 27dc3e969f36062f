"""Weight names in the original BERT and in Hugging Face transformers.

All formats are converted via the original's names. Kernels are [input, output] in the original and
[output, input] in transformers, which uses PyTorch; weights of heads are [labels, H] in both.
"""

import re
from collections.abc import Iterable, Mapping

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
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
# Last part of a name in the original -> last part in transformers, if they differ.
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias"}

# Redundant tensors in some files: copies of tied weights, and buffers that can be recomputed.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS, _BIAS = "cls.predictions.decoder.bias", "cls.predictions.bias"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def encoder_names(num_layers: int) -> list[str]:
    """Returns the names of all encoder weights in the original: embeddings, layers and pooler."""
    names = [f"bert/embeddings/{name}" for name in _EMBEDDINGS]
    for index in range(num_layers):
        names += [f"bert/encoder/layer_{index}/{name}" for name in _LAYER]
    return [*names, *POOLER]


def count_layers(names: Iterable[str]) -> int:
    """Counts encoder layers by the largest index in names from the original or transformers."""
    names = list(names)
    layers = (re.match(r"bert[/.]encoder[/.]layer[_.](\d+)[/.]", name) for name in names)
    # Never count more layers than names: the index in a damaged file may be huge.
    return min(max((int(layer[1]) + 1 for layer in layers if layer), default=0), len(names))


def to_hugging_face(name: str) -> str:
    """Converts the original's name of an encoder weight to its name in transformers.

    Example: `bert/encoder/layer_3/output/LayerNorm/gamma` becomes
    `bert.encoder.layer.3.output.LayerNorm.weight`.
    """
    *scopes, last = name.split("/")
    if last.endswith("_embeddings"):
        return ".".join([*scopes, last, "weight"])
    scopes = [re.sub(r"^layer_(\d+)$", r"layer.\1", scope) for scope in scopes]
    return ".".join([*scopes, _LEAVES.get(last, last)])


class HuggingFaceNames:
    """Maps the original's names to names in a safetensors file; for heads, as `heads` says.

    Supports names from early versions of transformers (`LayerNorm.gamma`), and from bare encoders,
    which lack the prefix `bert.`.

    Attributes:
        stored: original name -> name in the file.
        tied_decoder: name of the masked-LM head's copy of the word embeddings, if there is one.
        unknown: names in the file that are not part of BERT.
    """

    def __init__(self, file_names: Iterable[str], heads: Mapping[str, str]) -> None:
        modern = {_modernize(name): name for name in sorted(file_names)}  # name now -> in the file
        if not any(name.startswith("bert.") for name in modern):
            scopes = ("embeddings.", "encoder.", "pooler.")
            modern = {
                f"bert.{name}" if name.startswith(scopes) else name: stored
                for name, stored in modern.items()
            }
        self.tied_decoder = modern.pop(_TIED_WEIGHT, None)
        tied_bias = modern.pop(_TIED_BIAS, None)
        if tied_bias:
            modern.setdefault(_BIAS, tied_bias)
        encoder = encoder_names(count_layers(modern))
        known = {**heads, **{to_hugging_face(name): name for name in encoder}}
        self.stored = {known[name]: modern[name] for name in modern if name in known}
        unknown = [name for name in modern if name not in known and not name.endswith(_BUFFERS)]
        self.unknown = sorted(modern[name] for name in unknown)


def _modernize(name: str) -> str:
    # Early versions of transformers kept TensorFlow's names.
    return re.sub(r"LayerNorm\.(gamma|beta)$", lambda match: f"LayerNorm.{_LEAVES[match[1]]}", name)
