"""What padding costs: rows/s of training and prediction on MRPC, padded, cut, and grouped.

usage: python benchmarks/padding.py --model_dir=DIR --data_dir=MRPC [--rounds=5]

The encoder of --model_dir on the real rows of MRPC. Padded: every batch has --max_seq_length, as in
the original. Cut: as long as its longest text. Tokens: nothing is computed for the padding that is
left, the package's default in training on CPUs. Grouped: batches of similar length,
--length_grouping in training (with "tokens") and the default in prediction. Predictions and losses
of all are compared first.
"""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # as in the scripts
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import timing
from bert_tf import checkpoint, training
from bert_tf.config import BertConfig
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.data.packing import convert_examples, label_ids_of
from bert_tf.data.records import Feature, sequence_features, write_records
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.optimization import create_optimizer
from bert_tf.tasks.classification import glue
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

WAYS = {
    "padded": {},
    "cut": {"cut_padding": True},
    "tokens": {"cut_padding": True},
    "grouped": {"cut_padding": True, "group_by_length": True},
}
# Nothing is computed for padding in these.
SKIPPING = ("tokens", "grouped")
# What is timed together: so many batches in a training, so many rows in a prediction.
TRAINED_TOGETHER = 20
PREDICTED = 512


def main() -> None:
    """Compares, times, prints and writes the figures."""
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
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    folder = tempfile.TemporaryDirectory()
    path, few = f"{folder.name}/train.tf_record", f"{folder.name}/few.tf_record"
    found = convert_examples(examples, label_ids_of(examples, task.labels), length, tokenizer)
    batch = {feature.name: found[feature.name] for feature in features}
    write_records(path, features, [batch])
    write_records(few, features, [{name: rows[:PREDICTED] for name, rows in batch.items()}])

    training.set_precision(args.precision)
    strategy = tf.distribute.get_strategy()
    model = BertClassifier(BertConfig.from_json_file(str(args.model_dir / "bert_config.json")), 2)
    prefix = str(args.model_dir / "bert_model.ckpt")
    checkpoint.restore(model, prefix)
    optimizer = create_optimizer(2e-5, 10_000, 1000)
    optimizer.build(model.trainable_variables)
    spec = read_dataset(path, features, size, cut_padding=True).element_spec
    steps = [
        training.make_train_step(
            model,
            optimizer,
            training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"])),
            strategy,
            training.StepOptions(seed=1, skip_padding=skip_padding),
            element_spec=spec,
        )
        for skip_padding in (False, True)
    ]
    inference = training.cast_once(model, args.precision)

    def predict(way: dict) -> np.ndarray:
        dataset = read_dataset(few, features, size, row_numbers=True, **way)
        step = training.make_inference_step(
            inference,
            lambda outputs, batch: {
                "probabilities": outputs["probabilities"],
                "losses": cross_entropy(outputs["logits"], batch["label_ids"])[:, None],
            },
            dataset.element_spec,
            strategy,
        )
        results = training.run_batches(step, dataset, num_examples=PREDICTED, what="predict")
        return np.concatenate([results["probabilities"], results["losses"]], axis=1)

    results = [predict(way) for way in WAYS.values()]
    difference = max(np.abs(results[0] - other).max() for other in results)
    same = args.precision != "float32" or difference < 1e-5
    timing.require(same, f"predictions are the same ({difference})")

    batches = {
        name: iter(read_dataset(path, features, size, shuffle_seed=1, repeat=True, **way))
        for name, way in WAYS.items()
    }

    def train(name: str) -> None:
        for batch in itertools.islice(batches[name], TRAINED_TOGETHER):
            figures = steps[name in SKIPPING](batch, tf.constant(0))
        float(figures["loss"])

    figures = {
        "mean tokens of a row": round(float(batch["input_mask"].sum(1).mean()), 1),
        "max_seq_length": length,
        "batch_size": size,
        "precision": args.precision,
        "largest difference of probabilities and losses": float(difference),
    }
    for what, rows, work in (
        ("training", size * TRAINED_TOGETHER, train),
        ("prediction", PREDICTED, lambda name: predict(WAYS[name])),
    ):
        if args.only not in (None, what):
            continue
        seconds = timing.interleaved(
            {name: lambda name=name, work=work: work(name) for name in WAYS}, args.rounds
        )
        figures[what] = {
            "rows/s": {name: round(rows / statistics.median(s), 1) for name, s in seconds.items()},
            "times faster than padded": {
                name: round(timing.ratio(seconds["padded"], seconds[name]), 2)
                for name in WAYS
                if name != "padded"
            },
        }
        print(what, figures[what], flush=True)
    timing.write_results(
        f"padding_{args.only}" if args.only else "padding", figures, "tensorflow", "keras", "numpy"
    )


if __name__ == "__main__":
    main()
