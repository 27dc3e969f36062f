"""bert_tf: the 2018 BERT release as it would be written today.

Importing this package loads nothing else. Its main modules are `bert_tf.modeling` (the model),
`bert_tf.tokenization` (text to word pieces), `bert_tf.optimization` (the optimizer) and
`bert_tf.tasks` (the implementation of the scripts); public names are imported on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "1.0.0"

# The module that defines each public name; `__init__.pyi` has the same names.
_MODULES = {
    "BertConfig": "bert_tf.config",
    "BertModel": "bert_tf.modeling",
    "FullTokenizer": "bert_tf.tokenization",
    "Predictor": "bert_tf.predictor",
    "UserError": "bert_tf.errors",
    "register": "bert_tf.registry",
    "run": "bert_tf.registry",
}
# Modules of the original BERT code, for programs that import them.
_COMPAT_MODULES = ("extract_features", "run_classifier", "run_squad")


def __getattr__(name: str) -> Any:
    if name in _COMPAT_MODULES:
        return import_module(f"bert_tf.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    if name == "BertModel":
        # Registers the optimizer classes, which a .keras file of the model may need.
        import_module("bert_tf.optimization")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_COMPAT_MODULES])
