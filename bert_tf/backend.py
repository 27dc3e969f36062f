"""Checks that TensorFlow can compute in this program.

Importing this module makes TensorFlow the backend of Keras.
"""

import os
import sys
from importlib import import_module
from typing import Any

from bert_tf.errors import UserError
from bert_tf.quiet import import_tensorflow

# The process in which TensorFlow has started its threads, which a fork does not copy.
_started_in: int | None = None

import_tensorflow(for_script=False)
tf: Any = sys.modules["tensorflow"]
if (_backend := import_module("keras").config.backend()) != "tensorflow":
    raise UserError(
        f"Keras runs on the backend {_backend}: set KERAS_BACKEND=tensorflow before it is imported"
    )


def require_runtime(starts: bool = False) -> None:
    """Raises a UserError where TensorFlow would hang or fail.

    That is in a process forked after a model was loaded, without eager execution, and, if a model
    `starts` to be loaded or trained, inside `strategy.scope()`.
    """
    global _started_in
    if _started_in not in (None, os.getpid()):
        raise UserError(
            "This process was forked from one that had loaded a model, so TensorFlow hangs in it: "
            'load models after the fork only, or use multiprocessing.get_context("spawn")'
        )
    if not tf.executing_eagerly():
        graph = "in a tf.Graph, or after tf.compat.v1.disable_eager_execution()"
        where = "in a tf.function or Dataset.map" if tf.inside_function() else graph
        raise UserError(f"A model is loaded or called {where}, but needs eager execution")
    if starts and tf.distribute.has_strategy():
        raise UserError(
            "A model is loaded inside strategy.scope(), but chooses its devices itself: load it "
            "outside, with distribution_strategy= for other devices"
        )
    _started_in = os.getpid() if starts else _started_in
