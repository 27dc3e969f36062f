"""The classes for BERT of transformers 4 on TensorFlow: change the import line, and run."""

import importlib
import sys
from typing import Any

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
    "collators": [
        "DataCollatorForMultipleChoice",
        "DataCollatorForTokenClassification",
        "DataCollatorWithPadding",
        "DefaultDataCollator",
        "InputExample",
        "InputFeatures",
        "default_data_collator",
    ],
    "config": ["AutoConfig", "BertConfig", "PretrainedConfig"],
    "encoding": ["BatchEncoding"],
    "heads": [
        "TFAutoModel",
        "TFBertModel",
        *(f"TF{x}For{y}" for x in ("AutoModel", "Bert") for y in _HEADS),
    ],
    "losses": [
        "TFBertPreTrainingLoss",
        "TFMaskedLanguageModelingLoss",
        "TFMultipleChoiceLoss",
        "TFNextSentencePredictionLoss",
        "TFQuestionAnsweringLoss",
        "TFSequenceClassificationLoss",
        "TFTokenClassificationLoss",
    ],
    "model": [
        "TFBertMainLayer",
        "TFBertPreTrainedModel",
        "TFPreTrainedModel",
        "get_initializer",
        "keras_serializable",
        "shape_list",
    ],
    "optimization": ["create_optimizer"],
    "tokenizer": ["AutoTokenizer", "BertTokenizer", "BertTokenizerFast"],
}
__all__ = [x for names in _NAMES.values() for x in names]  # pyright: ignore[reportUnsupportedDunderAll]
_USE = (
    "For the inputs of a model, use tokenizer(texts, pairs, padding=True, truncation=True, "
    "return_tensors='tf'); train with model.fit, and predict with model(inputs). See "
    "docs/coming_from/tfbertmodel.md"
)
# The version whose classes these are: code compares it with others.
__version__ = "4.57.6"
# Modules of transformers from which code imports these names.
_BERT = ("configuration_bert", "modeling_tf_bert", "tokenization_bert")
for _path in (
    *("data", "file_utils", "keras_callbacks", "modeling_tf_outputs", "modeling_tf_utils"),
    *("models", "models.auto", "models.bert", "optimization_tf", "tf_utils", "utils"),
    *(f"{_package}{_name}" for _package in ("", "models.bert.") for _name in _BERT),
):
    sys.modules[f"{__name__}.{_path}"] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name == module:
            return importlib.import_module(f"{__name__}.{name}")
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    if name.startswith("__"):
        raise AttributeError(name)
    if name.endswith(("_available", "_enabled")):  # is_torch_available, is_sagemaker_dp_enabled
        return lambda: name == "is_tf_available"
    use = f"Use TF{name}" if f"TF{name}" in __all__ else _USE
    raise ImportError(f"There is no {name} here, only the TensorFlow classes for BERT. {use}")


def __dir__() -> list[str]:
    return sorted(__all__)
