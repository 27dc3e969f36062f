"""config.json of Hugging Face's transformers and bert_config.json of the original.

Both have the same names for sizes and rates. What differs: `gelu` there is the form with erf, the
original's `gelu` is the one with tanh; and some keys there change what a model computes, which
the original has no place for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.formats.heads import Head
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

LAYER_NORM_EPSILON = 1e-12
# Of the classifiers, whatever the configuration says.
_CLASSIFIER_DROPOUT = 0.1

# Names there; `gelu_new`, `gelu_fast` and `gelu_python_tanh` are one formula.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_accurate": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_EXPORTED_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu", "": "linear"}

# Of classifiers with other outputs than one label for each text: what --problem_type calls them.
PROBLEM_TYPES = {"multi_label_classification": "multilabel", "regression": "regression"}

# What is not in a file has these values there.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
# Keys of the Chinese and multilingual releases, which nothing reads.
_KEPT = ("directionality", "pooler_")
# Keys that change what is computed, and the only values that are BERT's.
_ONLY = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
}


def read(found: Mapping[str, Any], path: str) -> BertConfig:
    """The configuration of a model of transformers.

    Args:
        found: content of its config.json.
        path: of that, for messages.

    Raises:
        UserError: it is another model than BERT, or computes something that BERT does not.
    """
    kind = found.get("model_type", "bert")
    if kind != "bert":
        raise UserError(
            f"{path} is that of another model, {kind!r} (model_type): only BERT can be converted"
        )
    epsilon = found.get("layer_norm_eps", LAYER_NORM_EPSILON)
    if epsilon != LAYER_NORM_EPSILON:
        raise UserError(
            f"{path}: layer_norm_eps is {epsilon}. BERT computes with 1e-12, and bert_config.json "
            "has no place for another value: the model would compute something else"
        )
    for key, values in _ONLY.items():
        if found.get(key) not in values:
            raise UserError(
                f"{path}: {key} is {found[key]!r}. The original BERT has no such thing, its model "
                "would compute something else"
            )
    values = {**_DEFAULTS, **{key: found[key] for key in _DEFAULTS if key in found}}
    act = values["hidden_act"]
    if not isinstance(act, str) or act.lower() not in _ACTIVATIONS:
        raise UserError(
            f"{path}: hidden_act is {act!r}, which is none of {', '.join(_ACTIVATIONS)}"
        )
    values["hidden_act"] = _ACTIVATIONS[act.lower()]
    values |= {key: value for key, value in found.items() if key.startswith(_KEPT)}
    try:
        return BertConfig.from_dict(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def labels(found: Mapping[str, Any]) -> list[str] | None:
    """The labels of a model's outputs; None where they are only numbered.

    Args:
        found: content of its config.json.
    """
    names = found.get("id2label")
    if not isinstance(names, dict):
        return None
    ordered = [names.get(str(index)) for index in range(len(names))]
    if not all(isinstance(name, str) and name.strip() for name in ordered):
        return None
    if ordered == _numbered(len(ordered)) or len(set(ordered)) < len(ordered):
        return None
    return [str(name) for name in ordered]


def make(
    config: BertConfig, head: Head, outputs: int, names: Sequence[str] | None, pad: int | None
) -> dict[str, Any]:
    """The config.json of a model.

    Args:
        config: of the encoder.
        head: on it.
        outputs: of the head.
        names: its labels, where they are known.
        pad: id of [PAD], where the vocabulary has it.
    """
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
        ordered = list(names or _numbered(outputs))
        values |= {
            "classifier_dropout": _CLASSIFIER_DROPOUT,
            "id2label": {str(index): name for index, name in enumerate(ordered)},
            "label2id": {name: index for index, name in enumerate(ordered)},
        }
    return values


def tokenizer(do_lower_case: bool, max_length: int) -> dict[str, Any]:
    """The tokenizer_config.json of the original's tokenizer.

    Args:
        do_lower_case: whether it lower-cases; accents are then taken off, too.
        max_length: positions of the model.
    """
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


def _numbered(count: int) -> list[str]:
    return [f"LABEL_{index}" for index in range(count)]
