"""Measures the cost of padding in training and prediction on MRPC, in rows/s.

usage: python benchmarks/padding.py --model_dir=DIR --data_dir=MRPC [--rounds=5]

Uses the encoder in --model_dir. Training: "padded" pads every batch to --max_seq_length, like the
original; "trimmed" pads to the longest text of the batch; "unpadded" also skips computation for the
remaining padding, the default on CPUs; "grouped" adds --length_grouping. Prediction: "padded" is
--fixed_shapes; "grouped" is the default, which batches texts of similar length. The losses of both
prediction modes are compared first.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # as in the scripts
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import timing
from bert_tf import checkpoints, training
from bert_tf.config import BertConfig
from bert_tf.data.feature_specs import Feature, sequence_features
from bert_tf.data.features import label_ids_of
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.data.packing import convert_examples
from bert_tf.data.records import write_records
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.optimization import create_optimizer
from bert_tf.options import DeviceOptions
from bert_tf.tasks.classification import glue
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Arguments of `read_dataset`, and whether to skip computation for padding.
TRAINING = {
    "padded": ({}, False),
    "trimmed": ({"trim_padding": True}, False),
    "unpadded": ({"trim_padding": True}, True),
    "grouped": ({"trim_padding": True, "group_by_length": True}, True),
}
# Whether shapes are fixed.
PREDICTION = {"padded": True, "grouped": False}
# Batches or rows per measurement.
TRAIN_BATCHES = 20
PREDICT_ROWS = 512


def main() -> None:
    """Compares and times training and prediction; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("training", "prediction"))
    args = parser.parse_args()
    length, size = args.max_seq_length, args.batch_size
    task = glue.task_named("mrpc")
    tokenizer = BatchTokenizer(FullTokenizer(str(args.model_dir / "vocab.txt")))
    examples = glue.read_examples(task, "train", args.data_dir)
    features = (*sequence_features(length), Feature("label_ids"))
    rows = convert_examples(examples, label_ids_of(examples, task.labels), length, tokenizer)
    rows = {feature.name: rows[feature.name] for feature in features}
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/train.tf_record"
    write_records(path, features, [rows])

    options = DeviceOptions(precision=args.precision)
    devices = training.open_devices(options)
    with devices.strategy.scope():
        config = BertConfig.from_json_file(str(args.model_dir / "bert_config.json"))
        model = BertClassifier(config, 2)
        optimizer = create_optimizer(2e-5, 10_000, 1000)
        optimizer.build(model.trainable_variables)
    checkpoints.restore(model, str(args.model_dir / "bert_model.ckpt"))

    def losses(outputs: Any, batch: Any) -> Any:
        return cross_entropy(outputs["logits"], batch["label_ids"])

    spec = read_dataset(path, features, size, trim_padding=True).element_spec
    steps = [
        training.make_train_step(
            training.TrainState(model, optimizer),
            training.mean_loss(losses),
            devices.strategy,
            training.StepOptions(seed=1, skip_padding=skip_padding),
            element_spec=spec,
        )
        for skip_padding in (False, True)
    ]
    sample = {name: values[:PREDICT_ROWS] for name, values in rows.items()}
    inference = {
        name: training.Inference(
            model,
            lambda outputs, batch: {"losses": losses(outputs, batch)},
            features,
            dataclasses.replace(devices, fixed_shapes=fixed_shapes),
            size,
        )
        for name, fixed_shapes in PREDICTION.items()
    }
    predicted_losses = [mode.predict(sample)["losses"] for mode in inference.values()]
    difference = float(np.abs(predicted_losses[0] - predicted_losses[1]).max())
    is_close = args.precision != "float32" or difference < 1e-5
    timing.require(is_close, f"the predicted losses differ by {difference}")

    batches = {
        name: iter(read_dataset(path, features, size, shuffle_seed=1, repeat=True, **arguments))
        for name, (arguments, _) in TRAINING.items()
    }

    def train(name: str) -> None:
        step = steps[TRAINING[name][1]]
        for batch in itertools.islice(batches[name], TRAIN_BATCHES):
            metrics = step(batch, tf.constant(0))
        float(metrics["loss"])

    results = {
        "mean tokens per row": round(float(rows["input_mask"].sum(1).mean()), 1),
        "max_seq_length": length,
        "batch_size": size,
        "precision": args.precision,
        "max loss difference": difference,
    }
    for phase, count, names, function in (
        ("training", size * TRAIN_BATCHES, TRAINING, train),
        (
            "prediction",
            len(sample["input_mask"]),
            PREDICTION,
            lambda name: inference[name].predict(sample),
        ),
    ):
        if args.only not in (None, phase):
            continue
        functions = {name: functools.partial(function, name) for name in names}
        seconds = timing.time_interleaved(functions, args.rounds)
        results[phase] = {
            "rows/s": {name: round(count / statistics.median(s), 1) for name, s in seconds.items()},
            "times faster than padded": {
                name: round(timing.median_ratio(seconds["padded"], seconds[name]), 2)
                for name in names
                if name != "padded"
            },
        }
        print(phase, results[phase], flush=True)
    timing.write_results(
        f"padding_{args.only}" if args.only else "padding", results, "tensorflow", "keras", "numpy"
    )


if __name__ == "__main__":
    main()
