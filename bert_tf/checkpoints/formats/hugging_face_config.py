"""Converts between transformers' config.json and the original BERT's bert_config.json.

Both files have the same keys for sizes and dropout rates, but `gelu` means the exact function (with
erf) in transformers, and the tanh approximation in the original. Settings that exist only in
transformers raise an error if they change the computation.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.errors import UserError
from bert_tf.config import LAYER_NORM_EPSILON, BertConfig, require_original
from bert_tf.modeling.configured_model import HeadFormat
from bert_tf.modeling.heads import CLASSIFIER_DROPOUT
from bert_tf.tokenization import BasicTokenizer, FullTokenizer
from bert_tf.tokenization.special_tokens import unmarked

# Names of the tanh approximation in transformers.
_TANH_GELUS = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate")
# Activation in transformers -> activation in bert_config.json, and vice versa.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **dict.fromkeys(_TANH_GELUS, "gelu"),
    **{name: name for name in ("relu", "tanh", "linear")},
}
_EXPORTED_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_erf": "gelu", "": "linear"}

# Values of keys that a config.json may omit: the defaults of transformers.
DEFAULTS: dict[str, Any] = BertConfig(30522, type_vocab_size=2).to_dict()
DISTILBERT = "distilbert"
# Keys of a DistilBERT -> of a BERT.
_DISTILBERT = {
    "activation": "hidden_act",
    "attention_dropout": "attention_probs_dropout_prob",
    "dim": "hidden_size",
    "dropout": "hidden_dropout_prob",
    "hidden_dim": "intermediate_size",
    "initializer_range": "initializer_range",
    "max_position_embeddings": "max_position_embeddings",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "vocab_size": "vocab_size",
}
# Keys of the Chinese and multilingual releases' configurations: copied, although nothing uses them.
_UNUSED_PREFIXES = ("directionality", "pooler_")


def read(settings: Mapping[str, Any], path: str) -> BertConfig:
    """Converts the content of a config.json; `path` is used in messages."""
    model_type = settings.get("model_type", "bert")
    if model_type == DISTILBERT:
        known = {ours: settings[name] for name, ours in _DISTILBERT.items() if name in settings}
        settings = {"num_hidden_layers": 6, **known}
    elif model_type != "bert":
        raise UserError(f"no BERT model: model_type is {model_type!r}", at=path)
    values = {**DEFAULTS, **{key: settings[key] for key in DEFAULTS if key in settings}}
    act = values["hidden_act"]
    if not isinstance(act, str) or act.lower() not in _ACTIVATIONS:
        expected = f"hidden_act, one of {', '.join(_ACTIVATIONS)}"
        raise UserError(f"expected {expected}. Received: {act!r}", at=path)
    values["hidden_act"] = _ACTIVATIONS[act.lower()]
    values |= {key: value for key, value in settings.items() if key.startswith(_UNUSED_PREFIXES)}
    try:
        require_original(settings)
        return BertConfig.from_dict(values)
    except UserError as error:
        raise error.moved_to(path) from error


def make_config(
    config: BertConfig,
    head: HeadFormat | None,
    num_labels: int,
    labels: Sequence[str] | None,
    pad_id: int | None,
) -> dict[str, Any]:
    """Returns the content of a config.json; without `labels`, they are LABEL_0, LABEL_1, etc.

    `head` is None if the model's class does not declare it.
    """
    values = config.to_dict()
    act = (values["hidden_act"] or "").lower()
    values |= {
        "model_type": "bert",
        "hidden_act": _EXPORTED_ACTIVATIONS.get(act, act),
        "hidden_dropout_prob": values["hidden_dropout_prob"] or 0.0,
        "attention_probs_dropout_prob": values["attention_probs_dropout_prob"] or 0.0,
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "position_embedding_type": "absolute",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    if head and head.architecture:
        values["architectures"] = [head.architecture]
    if head.has_labels if head else labels:
        ordered = list(labels or (f"LABEL_{index}" for index in range(num_labels)))
        values |= {
            "classifier_dropout": CLASSIFIER_DROPOUT,
            "id2label": {str(index): label for index, label in enumerate(ordered)},
            "label2id": {label: index for index, label in enumerate(ordered)},
        }
    return values


def strip_accents(tokenizer: BasicTokenizer) -> bool | None:
    """Returns the setting of that name in transformers: None for the value of `do_lower_case`."""
    is_default = tokenizer.strip_accents == tokenizer.do_lower_case
    return None if is_default else tokenizer.strip_accents


def added_token(token: str) -> dict[str, Any]:
    """Describes a marked special token as transformers does."""
    text, false = unmarked(token), dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return {"content": text, "normalized": token != text, "special": token == text, **false}


def make_tokenizer_config(full_tokenizer: FullTokenizer, max_length: int) -> dict[str, Any]:
    """Returns the content of a tokenizer_config.json."""
    tokenizer, vocab = full_tokenizer.basic_tokenizer, full_tokenizer.vocab
    tokens = [added_token(token) for token in tokenizer.marked_tokens]
    added = {str(vocab[token["content"]]): token for token in tokens}
    special = [token["content"] for token in tokens if token["special"]]
    return {
        **({"added_tokens_decoder": added} if added else {}),
        **({"additional_special_tokens": special} if special else {}),
        "cls_token": "[CLS]",
        "do_lower_case": tokenizer.do_lower_case,
        "mask_token": "[MASK]",
        "model_max_length": max_length,
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "strip_accents": strip_accents(tokenizer),
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        "unk_token": "[UNK]",
    }
