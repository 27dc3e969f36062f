"""Converts between transformers' config.json and the original's bert_config.json.

Sizes and dropout rates have the same keys. `gelu` is computed exactly, with erf, in transformers,
and approximated with tanh in the original. Settings of transformers that change the computation and
that the original lacks raise an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.formats.heads import Head
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

LAYER_NORM_EPSILON = 1e-12
# The original's classifiers use this rate regardless of their configuration.
_CLASSIFIER_DROPOUT = 0.1

# Names of the tanh approximation in transformers.
_TANH_GELUS = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate")
_ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **dict.fromkeys(_TANH_GELUS, "gelu"),
    **{name: name for name in ("relu", "tanh", "linear")},
}
_EXPORTED_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu", "": "linear"}

# transformers' `problem_type` -> --problem_type, except for one label per text, the default.
PROBLEM_TYPES = {"multi_label_classification": "multilabel", "regression": "regression"}

# Default values in transformers.
_DEFAULTS: dict[str, Any] = BertConfig(30522, type_vocab_size=2).to_dict()
# Unused keys in the configurations of the Chinese and multilingual releases; they are kept.
_UNUSED_PREFIXES = ("directionality", "pooler_")
# Settings that change the computation, with the values that BERT requires.
_REQUIRED = {
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
}


def read(settings: Mapping[str, Any], path: str) -> BertConfig:
    """Converts the content of a config.json; `path` is used in messages."""
    kind = settings.get("model_type", "bert")
    if kind != "bert":
        raise UserError(f"{path}: model_type is {kind!r}. Only BERT models can be converted")
    for key, value in _REQUIRED.items():
        if settings.get(key) not in (value, None):
            problem = f"{key}={settings[key]!r} is not supported by the original BERT"
            raise UserError(f"{path}: {problem}; it requires {value!r}")
    values = {**_DEFAULTS, **{key: settings[key] for key in _DEFAULTS if key in settings}}
    act = values["hidden_act"]
    if not isinstance(act, str) or act.lower() not in _ACTIVATIONS:
        supported = ", ".join(_ACTIVATIONS)
        raise UserError(f"{path}: hidden_act must be one of {supported}; got {act!r}")
    values["hidden_act"] = _ACTIVATIONS[act.lower()]
    values |= {key: value for key, value in settings.items() if key.startswith(_UNUSED_PREFIXES)}
    try:
        return BertConfig.from_dict(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_labels(settings: Mapping[str, Any]) -> list[str] | None:
    """Returns the labels in a config.json; None if they are missing or placeholders (LABEL_0)."""
    names = settings.get("id2label")
    if not isinstance(names, dict):
        return None
    ordered = [names.get(str(index)) for index in range(len(names))]
    are_valid = all(isinstance(name, str) and name.strip() for name in ordered)
    if not are_valid or ordered == _placeholders(len(ordered)) or len(set(ordered)) < len(ordered):
        return None
    return ordered


def make_config(
    config: BertConfig, head: Head, num_outputs: int, names: Sequence[str] | None, pad: int | None
) -> dict[str, Any]:
    """Returns the content of config.json; `names` are the labels, `pad` is the id of `[PAD]`."""
    values = config.to_dict()
    act = (values["hidden_act"] or "").lower()
    values |= {
        "architectures": [head.architecture],
        "model_type": "bert",
        "hidden_act": _EXPORTED_ACTIVATIONS.get(act, act),
        "hidden_dropout_prob": values["hidden_dropout_prob"] or 0.0,
        "attention_probs_dropout_prob": values["attention_probs_dropout_prob"] or 0.0,
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "position_embedding_type": "absolute",
        "pad_token_id": pad,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    if head.has_labels:
        ordered = list(names or _placeholders(num_outputs))
        values |= {
            "classifier_dropout": _CLASSIFIER_DROPOUT,
            "id2label": {str(index): name for index, name in enumerate(ordered)},
            "label2id": {name: index for index, name in enumerate(ordered)},
        }
    return values


def make_tokenizer_config(do_lower_case: bool, max_length: int) -> dict[str, Any]:
    """Returns the content of a tokenizer_config.json that matches the original's tokenizer."""
    return {
        "cls_token": "[CLS]",
        "do_lower_case": do_lower_case,
        "mask_token": "[MASK]",
        "model_max_length": max_length,
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        "unk_token": "[UNK]",
    }


def _placeholders(count: int) -> list[str]:
    return [f"LABEL_{index}" for index in range(count)]
