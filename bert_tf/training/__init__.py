"""Training and inference on one device or many."""

# ruff: noqa: F401

from bert_tf.base.backend import tf
from bert_tf.training.build import (
    build_model,
    check_training,
    create_train_state,
    freeze_layers,
    training_batches,
)
from bert_tf.training.compilation import Lengths, for_inference, for_training
from bert_tf.training.devices import Devices, open_devices
from bert_tf.training.explained_errors import explained_errors
from bert_tf.training.inference import Inference
from bert_tf.training.loop import train
from bert_tf.training.loss import Loss, mean_loss
from bert_tf.training.step import TrainState, make_train_step
