"""bert_tf: the 2018 BERT release as it would be written today.

Importing this package loads nothing else. Its main modules are `bert_tf.modeling` (the model),
`bert_tf.tokenization` (text to word pieces), `bert_tf.optimization` (the optimizer) and
`bert_tf.tasks` (the implementation of the scripts); public names are imported on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "1.1.0"

# The module that defines each public name; `__init__.pyi` has the same names.
_MODULES = {
    "BertClassifier": "bert_tf.modeling",
    "BertConfig": "bert_tf.config",
    "BertModel": "bert_tf.modeling",
    "BertMultipleChoice": "bert_tf.tasks.multiple_choice.model",
    "BertPretrainer": "bert_tf.modeling",
    "BertSpanLabeler": "bert_tf.modeling",
    "BertTokenClassifier": "bert_tf.modeling",
    "FullTokenizer": "bert_tf.tokenization",
    "Predictor": "bert_tf.api.predictor",
    "SentenceEncoder": "bert_tf.api.sentence_encoder",
    "TextClassifier": "bert_tf.api.estimators",
    "TextRegressor": "bert_tf.api.estimators",
    "TokenClassifier": "bert_tf.api.estimators",
    "UserError": "bert_tf.base.errors",
    "encode": "bert_tf.api.text_inputs",
    "register": "bert_tf.options.registry",
    "run": "bert_tf.options.registry",
}
__all__ = [*_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]
# Modules of the original BERT code, for programs that import them.
_COMPAT_MODULES = ("extract_features", "run_classifier", "run_squad")


def __getattr__(name: str) -> Any:
    if name in _COMPAT_MODULES:
        return import_module(f"bert_tf.{name}")
    if name not in _MODULES:
        if advice := import_module("bert_tf.base.foreign_names").advice_of(["bert_tf"], name):
            # Of an AttributeError, `from bert_tf import ...` would not show the message.
            raise ImportError(f"There is no bert_tf.{name}. {advice}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    if name.startswith("Bert") and name != "BertConfig":
        # Registers the optimizer classes, which a .keras file of the model may need.
        import_module("bert_tf.optimization")
    return getattr(module, name)


def __dir__() -> list[str]:
    return ["__version__", *_MODULES]
