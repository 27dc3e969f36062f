"""Checks that TensorFlow can run models in this process.

Importing this module sets the Keras backend to TensorFlow.
"""

import os
import sys
from importlib import import_module
from typing import Any

from bert_tf.errors import UserError
from bert_tf.quiet import import_tensorflow

# ID of the process in which TensorFlow started its threads; a fork does not copy threads.
_owner_pid: int | None = None

import_tensorflow(for_script=False)
tf: Any = sys.modules["tensorflow"]
if (_backend := import_module("keras").config.backend()) != "tensorflow":
    raise UserError(
        f"Keras runs on the {_backend} backend: set KERAS_BACKEND=tensorflow before importing it"
    )


def require_runtime(starts: bool = False) -> None:
    """Raises a UserError if TensorFlow would hang or fail.

    That happens in a process forked after a model was loaded, without eager execution, and inside
    `strategy.scope()` if a model is about to be loaded or trained (`starts`).
    """
    global _owner_pid
    if _owner_pid not in (None, os.getpid()):
        raise UserError(
            "This process was forked from one that had loaded a model, so TensorFlow would hang: "
            'load models only after the fork, or use multiprocessing.get_context("spawn")'
        )
    if not tf.executing_eagerly():
        graph_mode = "in a tf.Graph, or after tf.compat.v1.disable_eager_execution()"
        where = "in a tf.function or Dataset.map" if tf.inside_function() else graph_mode
        raise UserError(f"A model cannot be loaded or called {where}: it needs eager execution")
    if starts and tf.distribute.has_strategy():
        raise UserError(
            "A model cannot be loaded inside strategy.scope(): load it outside, and pass "
            "distribution_strategy= to choose its devices"
        )
    _owner_pid = os.getpid() if starts else _owner_pid
