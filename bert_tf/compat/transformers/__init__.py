"""The classes for BERT of transformers 4 on TensorFlow: change the import line, and run."""

import importlib
import sys
from typing import Any

from bert_tf.base.foreign_names import advice_of

_HEADS = (
    "MaskedLM",
    "MultipleChoice",
    "NextSentencePrediction",
    "PreTraining",
    "QuestionAnswering",
    "SequenceClassification",
    "TokenClassification",
)
# Module -> its public names, which are imported on first use.
_NAMES = {
    "auto": [
        "AutoConfig",
        "TFAutoModel",
        *(f"TFAutoModelFor{name}" for name in _HEADS),
        "create_optimizer",
    ],
    "config": ["BertConfig", "PretrainedConfig"],
    "encoding": ["BatchEncoding"],
    "heads": ["TFBertModel", *(f"TFBertFor{name}" for name in _HEADS)],
    "model": [
        "TFBertMainLayer",
        "TFBertPreTrainedModel",
        "TFPreTrainedModel",
        "get_initializer",
        "shape_list",
    ],
    "tokenizer": ["AutoTokenizer", "BertTokenizer", "BertTokenizerFast"],
}
__all__ = [x for names in _NAMES.values() for x in names]  # pyright: ignore[reportUnsupportedDunderAll]
# The version whose classes these are: code compares it with others.
__version__ = "4.57.6"
# Modules of transformers from which code imports these names.
for _path in ("file_utils", "modeling_tf_utils", "modeling_tf_bert", "models", "tf_utils"):
    sys.modules[f"{__name__}.{_path}"] = sys.modules[__name__]
for _path in ("models.bert", "models.bert.modeling_tf_bert", "models.bert.tokenization_bert"):
    sys.modules[f"{__name__}.{_path}"] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name == module:
            return importlib.import_module(f"{__name__}.{name}")
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    if name.startswith("__"):
        raise AttributeError(name)
    advice = advice_of(["bert_tf", "any"], name) or "See docs/coming_from/tfbertmodel.md"
    raise ImportError(f"There is no {name} here, only the TensorFlow classes for BERT. {advice}")


def __dir__() -> list[str]:
    return sorted(__all__)
