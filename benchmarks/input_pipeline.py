"""Times the input pipeline, in rows/s, against the input pipeline of the original BERT release.

usage: python benchmarks/input_pipeline.py [--rows=20000] [--max_seq_length=128] [--rounds=5]

Reads, shuffles, batches and parses records of 12 to --max_seq_length random ids. The original has a
shuffle buffer of 100 records and parses one record at a time; bert_tf shuffles all records and
parses whole batches.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import timing
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.data.records import write_records


def build_original_pipeline(
    path: str, features: tuple[Feature, ...], batch_size: int
) -> tf.data.Dataset:
    """Builds the input pipeline of the original BERT release."""
    feature_spec = {
        feature.name: tf.io.FixedLenFeature(feature.shape, tf.int64) for feature in features
    }

    def decode(record: tf.Tensor) -> dict[str, tf.Tensor]:
        example = tf.io.parse_single_example(record, feature_spec)
        return {name: tf.cast(value, tf.int32) for name, value in example.items()}

    records = tf.data.TFRecordDataset(path).shuffle(100)
    return records.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size)


def main() -> None:
    """Times all pipelines; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    shape = (args.rows, args.max_seq_length)
    mask = np.arange(shape[1]) < rng.integers(12, shape[1] + 1, args.rows)[:, None]
    batch = {
        "input_ids": rng.integers(1, 30_000, shape) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros(shape, np.int32),
        "label_ids": np.zeros(args.rows, np.int32),
    }
    features = (*sequence_features(shape[1]), Feature("label_ids"))
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/train.tf_record"
    write_records(path, features, [batch])
    pipelines = {
        "original": lambda: build_original_pipeline(path, features, args.batch_size),
        "shuffled": lambda: read_dataset(
            path, features, args.batch_size, shuffle_seed=1, num_records=args.rows
        ),
        "shuffled, trimmed": lambda: read_dataset(
            path,
            features,
            args.batch_size,
            shuffle_seed=1,
            num_records=args.rows,
            trim_padding=True,
        ),
        "shuffled, trimmed, grouped": lambda: read_dataset(
            path,
            features,
            args.batch_size,
            shuffle_seed=1,
            num_records=args.rows,
            trim_padding=True,
            group_by_length=True,
        ),
    }
    # The sum of all ids detects missing and repeated rows.
    id_sums = set()
    for build in pipelines.values():
        id_sums.add(sum(int(tf.reduce_sum(tf.cast(b["input_ids"], tf.int64))) for b in build()))
    timing.require(
        id_sums == {int(batch["input_ids"].sum())}, "a pipeline does not yield all rows once"
    )

    def iterate(name: str) -> None:
        for _ in pipelines[name]():
            pass

    seconds = timing.time_interleaved(
        {name: lambda name=name: iterate(name) for name in pipelines}, args.rounds
    )
    results = {
        "rows": args.rows,
        "max_seq_length": args.max_seq_length,
        "batch_size": args.batch_size,
        "rows/s": {name: round(args.rows / statistics.median(s)) for name, s in seconds.items()},
        "times faster than the original": {
            name: round(timing.median_ratio(seconds["original"], s), 2)
            for name, s in seconds.items()
        },
    }
    print(results)
    timing.write_results("input_pipeline", results, "tensorflow", "numpy")


if __name__ == "__main__":
    main()
