"""Measures peak memory and step time of training BERT-base, with and without memory-saving flags.

usage: python benchmarks/memory.py [--num_layers=12] [--batch_size=32] [--length=128] [--steps=3]

Trains a model of the size of BERT-base, uncased, on the CPU, with random weights and inputs. Each
combination of flags and precision, a cell, is measured in a separate process. Prints a table, and
writes all numbers to benchmarks/results/memory.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # as in the scripts
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import timing

# Name of a table row -> number of micro-batches, and whether layers are recomputed.
ROWS = {
    "no flags": (1, False),
    "--gradient_accumulation_steps=4": (4, False),
    "--recompute_layers=true": (1, True),
    "both": (4, True),
}
PRECISIONS = ("float32", "bfloat16")


def current_bytes() -> int:
    """Returns the memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_cell(args: argparse.Namespace) -> dict[str, Any]:
    """Trains for a few steps in this process; returns the memory and step time of one cell."""
    import numpy as np
    import tensorflow as tf

    from bert_tf import checkpoints, training
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertClassifier
    from bert_tf.modeling.losses import cross_entropy
    from bert_tf.optimization import create_optimizer
    from bert_tf.options import DeviceOptions, TrainingOptions
    from bert_tf.training.memory import estimate_training_bytes

    micro_batches, recompute = ROWS[args.row]
    options = DeviceOptions(precision=args.precision, distribution_strategy="one_device")
    devices = training.open_devices(options)
    tf.zeros([]) + 1.0  # initializes TensorFlow's devices
    imported_bytes = current_bytes()
    config = BertConfig(vocab_size=30522, num_hidden_layers=args.num_layers)
    with devices.scope():
        model = BertClassifier(config, 2, recompute_layers=recompute)
        optimizer = create_optimizer(5e-5, num_train_steps=1000, num_warmup_steps=100)
        optimizer.build(model.trainable_variables)
    built_bytes = current_bytes()
    # Shapes are dynamic, as in the scripts.
    names = ("input_ids", "input_mask", "segment_ids")
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
    spec["label_ids"] = tf.TensorSpec([None], tf.int32)
    step = training.make_train_step(
        training.TrainState(model, optimizer),
        training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"])),
        TrainingOptions(random_seed=1, gradient_accumulation_steps=micro_batches),
        devices,
        element_spec=spec,
    )
    rng = np.random.default_rng(1)
    shape = (args.batch_size, args.length)
    batch = {
        "input_ids": tf.constant(rng.integers(config.vocab_size, size=shape), tf.int32),
        "input_mask": tf.ones(shape, tf.int32),
        "segment_ids": tf.constant(rng.integers(2, size=shape), tf.int32),
        "label_ids": tf.constant(rng.integers(2, size=args.batch_size), tf.int32),
    }
    seconds = []
    for _ in range(args.steps):
        start = time.monotonic()
        float(step(batch, tf.constant(0))["loss"])
        seconds.append(time.monotonic() - start)
    variables = checkpoints.named_variables(model).values()
    num_parameters = sum(int(np.prod(variable.shape)) for variable in variables)
    return {
        "row": args.row,
        "precision": args.precision,
        "imported_bytes": imported_bytes,
        "built_bytes": built_bytes,
        "peak_bytes": timing.peak_bytes(),
        "estimated_bytes": estimate_training_bytes(
            config,
            num_parameters,
            *shape,
            precision=args.precision,
            accumulation_steps=micro_batches,
            recompute_layers=recompute,
        ),
        "seconds": seconds,
        # The first step compiles.
        "seconds_per_step": statistics.median(seconds[-2:]),
    }


def run_cell(row: str, precision: str) -> dict[str, Any]:
    """Runs `measure_cell` in a new process."""
    command = [sys.executable, *sys.argv, f"--row={row}", f"--precision={precision}"]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"{row}, {precision}: exit code {process.returncode}\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def format_table(cells: list[dict[str, Any]]) -> str:
    """Returns the results as a Markdown table, with memory in GB (10^9 bytes)."""
    columns = ("peak", "before the first step", "estimated / measured", "s / step")
    names = [f"{precision}: {column}" for precision in PRECISIONS for column in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in ROWS:
        line = [f"`{row}`" if row.startswith("--") else row]
        for precision in PRECISIONS:
            cell = next(c for c in cells if (c["row"], c["precision"]) == (row, precision))
            # The estimate excludes TensorFlow itself.
            measured = cell["peak_bytes"] - cell["imported_bytes"]
            line += [
                f"{cell['peak_bytes'] / 1e9:.2f} GB",
                f"{cell['built_bytes'] / 1e9:.2f} GB",
                f"{cell['estimated_bytes'] / 1e9:.2f} / {measured / 1e9:.2f} GB",
                f"{cell['seconds_per_step']:.1f}",
            ]
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measures all cells in separate processes, or one cell in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_layers", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=32, help="a multiple of 4")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--row", choices=ROWS, help="print one cell as JSON (with --precision)")
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0])
    args = parser.parse_args()
    if args.row:
        print(json.dumps(measure_cell(args)))
        return
    cells = []
    for row in ROWS:
        for precision in PRECISIONS:
            cells.append(run_cell(row, precision))
            print(json.dumps(cells[-1]), file=sys.stderr, flush=True)
    print(format_table(cells))
    timing.write_results("memory", {"cells": cells}, "tensorflow", "keras")


if __name__ == "__main__":
    main()
