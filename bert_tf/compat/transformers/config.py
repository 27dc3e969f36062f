"""`BertConfig` as in transformers."""

import json
import os
from typing import Any

import bert_tf.config
from bert_tf.base import files
from bert_tf.checkpoints.formats import hugging_face_config
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.formats.hugging_face import CONFIG
from bert_tf.compat.transformers.folders import find_folder

# Settings that change outputs or heads, and the defaults of transformers.
_SETTINGS = {
    "classifier_dropout": None,
    "output_attentions": False,
    "output_hidden_states": False,
    "return_dict": True,
    "pad_token_id": 0,
    "layer_norm_eps": 1e-12,
}


class BertConfig:
    """Sizes and settings of a model, with the names and defaults of transformers.

    Attributes that the model does not use are kept, and written by `save_pretrained`.

    Example:
        config = BertConfig(hidden_size=128, num_attention_heads=2, num_labels=3)
        model = TFBertForSequenceClassification(config)
    """

    model_type = "bert"

    def __init__(self, **settings: Any) -> None:
        num_labels = settings.pop("num_labels", None)
        names = settings.pop("id2label", None) or {}
        names = {int(index): name for index, name in names.items()}
        if num_labels is not None and len(names) != num_labels:
            names = {}
        count = len(names) or (2 if num_labels is None else num_labels)
        self.id2label = names or {index: f"LABEL_{index}" for index in range(count)}
        settings.pop("label2id", None)
        defaults = {**hugging_face_config.DEFAULTS, "hidden_act": "gelu", **_SETTINGS}
        settings.pop("model_type", None)
        vars(self).update({**defaults, **settings})

    @property
    def label2id(self) -> dict[str, int]:
        """The index of each label."""
        return {name: index for index, name in self.id2label.items()}

    @property
    def num_labels(self) -> int:
        """The number of labels."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, count: int) -> None:
        self.id2label = {index: f"LABEL_{index}" for index in range(count)}

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike, **settings: Any) -> "BertConfig":
        """Reads the configuration of a model's folder; `settings` replace its values."""
        folder = find_folder(name)
        path = os.path.join(folder, CONFIG)
        if files.exists(path):
            values = files.read_json(path)
        else:
            source = find_source(folder)
            config = source.config() or bert_tf.config.BertConfig(30522)
            labels = source.labels or ["LABEL_0", "LABEL_1"]
            values = hugging_face_config.make_config(config, None, len(labels), labels, 0)
        if "num_labels" in settings and "id2label" not in settings:
            values.pop("num_labels", None)
        return cls(**{**values, **settings})

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of a config.json."""
        names = {str(index): name for index, name in self.id2label.items()}
        labels = {"id2label": names, "label2id": self.label2id}
        return {**vars(self), **labels, "model_type": self.model_type}

    def to_json_string(self) -> str:
        """Returns the text of a config.json."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def save_pretrained(self, folder: str | os.PathLike) -> None:
        """Writes `config.json`."""
        files.make_dirs(os.fspath(folder))
        files.write_text(os.path.join(folder, CONFIG), self.to_json_string())

    def original(self) -> bert_tf.config.BertConfig:
        """Returns the configuration of our model."""
        return hugging_face_config.read(self.to_dict(), "config")

    def __repr__(self) -> str:
        return f"BertConfig {self.to_json_string()}"


AutoConfig = PretrainedConfig = BertConfig
