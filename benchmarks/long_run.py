"""Measures the memory of a process over thousands of training steps and predictions.

usage: python benchmarks/long_run.py [--steps=3000]

The model has 2 layers of 128 units. Sequence length and number of tokens change in each step, which
reveals caches that grow with the number of shapes (TensorFlow, oneDNN, malloc). Each training step
is followed by a prediction for the same rows.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # as in the scripts
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import timing
from bert_tf import training
from bert_tf.config import BertConfig
from bert_tf.data.features import sequence_features
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.optimization import create_optimizer
from bert_tf.options import DeviceOptions, TrainingOptions

CONFIG = BertConfig(
    vocab_size=3000,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
)
BATCH_SIZE, SHORTEST, LONGEST = 32, 10, 64
# Steps after which memory is measured.
MEASURED_STEPS = (100, 500, 1000, 2000, 3000, 5000, 10_000, 20_000)


def make_functions() -> tuple[Any, Any]:
    """Returns two compiled functions, which train on a batch and predict a batch."""
    devices = training.open_devices(DeviceOptions())
    with devices.scope():
        model = BertClassifier(CONFIG, 2)
        optimizer = create_optimizer(2e-5, num_train_steps=1_000_000, num_warmup_steps=0)
        optimizer.build(model.trainable_variables)
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
    train_step = training.make_train_step(
        training.TrainState(model, optimizer),
        training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"])),
        TrainingOptions(random_seed=1),
        devices,
        element_spec={**inputs, "label_ids": tf.TensorSpec([None], tf.int32)},
    )
    inference = training.Inference(
        model,
        lambda out, batch: {"probabilities": out["probabilities"]},
        sequence_features(LONGEST),
        devices,
        BATCH_SIZE,
    )
    return train_step, inference.predict


def random_batch(rng: np.random.Generator) -> dict[str, tf.Tensor]:
    """Returns a batch of rows of random lengths, padded to a random length."""
    length = rng.integers(SHORTEST, LONGEST + 1)
    num_tokens = rng.integers(3, length + 1, BATCH_SIZE)
    mask = np.arange(length) < num_tokens[:, None]
    ids = rng.integers(CONFIG.vocab_size, size=mask.shape)
    return {
        "input_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(mask, tf.int32),
        "segment_ids": tf.zeros(mask.shape, tf.int32),
        "label_ids": tf.constant(rng.integers(2, size=BATCH_SIZE), tf.int32),
    }


def main() -> None:
    """Trains and predicts; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    train_step, predict = make_functions()
    rng = np.random.default_rng(1)
    megabytes = {}
    for step in range(1, args.steps + 1):
        batch = random_batch(rng)
        train_step(batch, tf.constant(0))
        predict({name: value.numpy() for name, value in batch.items()})
        if step in MEASURED_STEPS or step == args.steps:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            megabytes[str(step)] = round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
            print(step, "steps:", megabytes[str(step)], "MB", flush=True)
    timing.write_results("long_run", {"MB after steps": megabytes}, "tensorflow", "keras", "numpy")


if __name__ == "__main__":
    main()
