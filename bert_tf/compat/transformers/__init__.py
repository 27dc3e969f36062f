"""The classes for BERT of transformers 4 on TensorFlow: change the import line, and run."""

import importlib
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
    "auto": ["AutoConfig", "TFAutoModel", *(f"TFAutoModelFor{name}" for name in _HEADS)]
    + ["create_optimizer"],
    "config": ["BertConfig", "PretrainedConfig"],
    "encoding": ["BatchEncoding"],
    "heads": ["TFBertModel", *(f"TFBertFor{name}" for name in _HEADS)],
    "models": ["TFBertMainLayer", "TFBertPreTrainedModel", "TFPreTrainedModel"],
    "tokenizer": ["AutoTokenizer", "BertTokenizer", "BertTokenizerFast"],
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    if name.startswith("__"):
        raise AttributeError(name)
    advice = advice_of(["bert_tf", "any"], name) or "See docs/coming_from/tfbertmodel.md"
    raise ImportError(f"There is no {name} here, only the TensorFlow classes for BERT. {advice}")


def __dir__() -> list[str]:
    return sorted(name for names in _NAMES.values() for name in names)
