"""Model configuration, read from the `bert_config.json` of the original BERT release."""

import copy
import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import UserError, warn

# The original's activations (None and "" mean `linear`), and `gelu_erf`, the exact GELU.
ACTIVATIONS = ("linear", "relu", "gelu", "tanh", "gelu_erf")

LAYER_NORM_EPSILON = 1e-12
# Settings of transformers that change the computation -> their value for the original BERT.
_REQUIRED = {
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
}

# Minimum similarity of an unknown key and a missing one, to ask "did you mean".
_MIN_TYPO_SIMILARITY = 0.9


@dataclasses.dataclass(eq=False, repr=False)
class BertConfig:
    """Configuration of a BERT model, with the original's names and defaults.

    Keys that the model does not use (`directionality`, `pooler_*` in the Chinese and
    multilingual files) are kept as attributes and written back.

    Args:
        vocab_size: rows of the word embedding table.
        hidden_size: H, width of every layer.
        num_hidden_layers: number of encoder layers.
        num_attention_heads: N, a divisor of `hidden_size`.
        intermediate_size: I, width of the feed-forward layer.
        hidden_act: a callable, or `linear`, `relu`, `gelu`, `tanh` or `gelu_erf` (not in the
            original), in any case; None and "" mean `linear`.
        hidden_dropout_prob: dropout rate after embeddings and dense layers, in [0, 1); None is 0.
        attention_probs_dropout_prob: dropout rate of attention probabilities; None is 0.
        max_position_embeddings: rows of the position table; the maximum sequence length.
        type_vocab_size: number of segment ids.
        initializer_range: standard deviation of the truncated normal initializer.

    Raises:
        UserError: a value is invalid; the message names the key.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | Callable | None = "gelu"
    hidden_dropout_prob: float | None = 0.1
    attention_probs_dropout_prob: float | None = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for key in SIZES:
            value = getattr(self, key)
            is_size = type(value) is int and 0 < value < 2**31
            self._require(key, is_size, "a positive integer")
        heads = self.num_attention_heads
        is_multiple = self.hidden_size % heads == 0
        self._require("hidden_size", is_multiple, f"a multiple of num_attention_heads={heads}")
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"):
            value, limit = getattr(self, key), math.inf if key == "initializer_range" else 1
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_valid = (is_number and 0 <= value < limit) or (value is None and limit == 1)
            self._require(key, is_valid, f"a number in [0, {limit})")
        act = self.hidden_act
        is_known = act is None or (isinstance(act, str) and act.lower() in ("", *ACTIVATIONS))
        names = ", ".join(ACTIVATIONS)
        self._require("hidden_act", is_known or callable(act), f"one of {names}")

    def _require(self, key: str, is_valid: bool, expected: str) -> None:
        if not is_valid:
            raise UserError(f"{key} must be {expected}. Received: {getattr(self, key)!r}")

    @classmethod
    def from_dict(cls, json_object: dict[str, Any]) -> "BertConfig":
        """Creates a configuration from a dictionary; missing keys get their defaults.

        Raises:
            UserError: `vocab_size` is missing, or a value is invalid.
        """
        if "vocab_size" not in json_object:
            keys = ", ".join(sorted(json_object)) or "no keys"
            raise UserError(f"The model configuration lacks the key vocab_size. Received: {keys}")
        require_original(json_object)
        known = {field.name for field in dataclasses.fields(cls)}
        values = copy.deepcopy(json_object)
        for key in [key for key in values if key not in known]:
            similar = difflib.get_close_matches(key, known, 1, _MIN_TYPO_SIMILARITY)
            if similar and similar[0] not in values and key[:1] == similar[0][:1]:
                raise UserError(f"Unknown key {key!r}; did you mean {similar[0]!r}?")
        config = cls(**{key: value for key, value in values.items() if key in known})
        vars(config).update(values)
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Reads a `bert_config.json`.

        Raises:
            UserError: the file is missing, is not a JSON object, or has an invalid value; the
                message names the file.
        """
        json_object = files.read_json(json_file)
        try:
            config = cls.from_dict(json_object)
        except UserError as error:
            raise error.moved_to(json_file) from error
        for key in sorted(vars(config).keys() - json_object):
            warn(f"no {key}: using the default, {getattr(config, key)}", at=json_file)
        return config

    def to_dict(self) -> dict[str, Any]:
        """Returns all keys, including unknown ones, with deep copies of their values."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self) -> str:
        """Returns the same JSON as the original: sorted keys, indent 2, trailing newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BertConfig) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # mutable, as in the original

    def __repr__(self) -> str:
        return f"BertConfig({self.__dict__})"


# Keys that must be positive integers.
SIZES = tuple(field.name for field in dataclasses.fields(BertConfig) if field.type is int)


def require_original(settings: Mapping[str, Any]) -> None:
    """Raises a UserError if a setting of transformers makes the model differ from the original."""
    for key, value in _REQUIRED.items():
        if settings.get(key) not in (value, None):
            problem = f"{key}={settings[key]!r} is not supported by the original BERT"
            raise UserError(f"{problem}, which requires {value!r}")
