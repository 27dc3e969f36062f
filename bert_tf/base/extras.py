"""Imports optional packages, which are installed as extras of this package."""

from importlib import import_module
from typing import Any

from bert_tf.base.errors import UserError

# Engine -> module that runs exported models. The extra that installs it is named like the engine.
RUNTIMES = {"onnx": "onnxruntime", "litert": "ai_edge_litert.interpreter"}


def import_extra(module: str, extra: str) -> Any:
    """Imports a module of an optional package; raises a UserError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        advice = f'run pip install "bert_tf[{extra}]"'
        raise UserError(f"Cannot import the package {package} ({error}): {advice}") from error
