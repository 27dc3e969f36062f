"""bert_tf: the 2018 BERT release as it would be written today.

Importing this package loads nothing else; the parts are imported where they are used:
`bert_tf.modeling` (the model), `bert_tf.tokenization` (text to word pieces),
`bert_tf.optimization` (the optimizer), `bert_tf.tasks` (what the scripts run).
"""

import importlib

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`from bert_tf import run_classifier`, for programs that used the original's modules."""
    if name in ("run_classifier", "run_squad", "extract_features"):
        return importlib.import_module(f"bert_tf.compat.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
