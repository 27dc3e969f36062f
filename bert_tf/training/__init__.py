"""Training, evaluation and prediction on one device or many."""

import bert_tf.backend  # noqa: F401
from bert_tf.training.compiled_rows import compiled_rows
from bert_tf.training.inference import make_inference_step, run_batches
from bert_tf.training.loop import LoopOptions, Observer, explained_errors, train
from bert_tf.training.memory import estimate_training_bytes
from bert_tf.training.precision import LossScale, cast_once, set_precision
from bert_tf.training.rows import BATCHES_AT_ONCE, RowRunner
from bert_tf.training.step import Loss, StepOptions, make_train_step, mean_loss
from bert_tf.training.strategy import Devices, choose_devices

__all__ = [
    "BATCHES_AT_ONCE",
    "Devices",
    "LoopOptions",
    "Loss",
    "LossScale",
    "Observer",
    "RowRunner",
    "StepOptions",
    "cast_once",
    "choose_devices",
    "compiled_rows",
    "estimate_training_bytes",
    "explained_errors",
    "make_inference_step",
    "make_train_step",
    "mean_loss",
    "run_batches",
    "set_precision",
    "train",
]
