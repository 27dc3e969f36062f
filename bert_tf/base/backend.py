"""Imports TensorFlow on first use, and checks that it can run models in this process.

Importing this module makes TensorFlow the backend of Keras. The first use of `backend.tf` imports
TensorFlow, so modules that also work without it (`engine="onnx"`) use it only inside functions.
"""

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from bert_tf.base.errors import UserError
from bert_tf.base.quiet import import_tensorflow, select_backend

# ID of the process that loaded a model. A forked child lacks the threads that the model uses.
_owner_pid: int | None = None


def _require_backend() -> None:
    select_backend()
    keras: Any = sys.modules.get("keras")
    if keras and (name := keras.config.backend()) != "tensorflow":
        raise UserError(
            f"Keras runs on the {name} backend: set KERAS_BACKEND=tensorflow before importing Keras"
        )


_require_backend()


def __getattr__(name: str) -> Any:
    if name != "tf":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_tensorflow(for_script=False)
    _require_backend()
    globals()["tf"] = sys.modules["tensorflow"]
    return sys.modules["tensorflow"]


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a package, which imports a name's module on first use.

    `modules` maps names to modules. TensorFlow is imported before any of them, as they may need it.
    """

    def getattr_of_package(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        __getattr__("tf")  # imports TensorFlow
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return getattr_of_package


def require_runtime(loads_model: bool = False) -> None:
    """Raises a UserError if TensorFlow or ONNX Runtime would hang or fail.

    This happens in a process that was forked after a model was loaded, or without eager execution.
    Pass `loads_model` before loading or training a model, to also reject `strategy.scope()`.
    """
    global _owner_pid
    if _owner_pid not in (None, os.getpid()):
        raise UserError(
            "A model would hang, as this process was forked from one that had loaded a model: load "
            'models only after the fork, or use multiprocessing.get_context("spawn")'
        )
    tf: Any = sys.modules.get("tensorflow")
    has_scope = loads_model and tf and tf.distribute.has_strategy()
    if has_scope or (tf and not tf.executing_eagerly()):
        raise UserError("A model needs eager execution, outside tf.function and strategy.scope()")
    _owner_pid = os.getpid() if loads_model else _owner_pid
