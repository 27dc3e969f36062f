"""Times fine-tuning on MRPC, in rows/s, against Hugging Face's BERT on PyTorch.

usage: python benchmarks/fine_tuning.py --vocab_file=FILE --data_dir=MRPC [--precision=bfloat16]
           [--release=uncased_L-12_H-768_A-12] [--rows=192] [--full_rows] [--rounds=5]
           [--only_best]

Both models have the size of a published model and the same random weights. bert_tf pads batches to
their longest text (default flags), or also groups texts by length (--length_grouping=true, the best
flags). transformers pads to --max_seq_length, like the example run_glue.py, or to the longest text
of a batch, like DataCollatorWithPadding; it uses AdamW and clips gradients to a norm of 1. The
logits of the first batch are compared. Methods are timed in pairs, alternating between two
processes (four would need 30 GB for BERT-base), on the same pre-tokenized rows. Memory is the peak
of a process. --only_best compares only bert_tf's best flags with dynamic padding; use it on
processors without bfloat16 instructions, where a step of transformers takes minutes. Needs torch
and transformers.
"""

import argparse
import functools
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing

# Name of a method -> arguments of `read_dataset`.
OURS = {"bert_tf": {}, "bert_tf, best flags": {"group_by_length": True}}
# Name of a method -> whether to pad to the maximum length.
THEIRS = {"transformers, padded": True, "transformers, dynamic": False}
PAIRS = (
    ("bert_tf", "transformers, padded"),
    ("bert_tf, best flags", "transformers, dynamic"),
    ("bert_tf", "transformers, dynamic"),
)
BATCH_SIZE, LEARNING_RATE = 32, 2e-5


def make_bert_tf_trainer(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """Returns a function that trains on all rows once with bert_tf."""
    from bert_tf.base.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    from bert_tf import checkpoints, training
    from bert_tf.config import BertConfig
    from bert_tf.data.features import Feature, sequence_features
    from bert_tf.data.input_pipeline import read_dataset
    from bert_tf.modeling import BertClassifier
    from bert_tf.modeling.losses import cross_entropy
    from bert_tf.optimization import create_optimizer
    from bert_tf.options import DeviceOptions, TrainingOptions

    rows = dict(np.load(folder / "rows.npz"))
    num_rows, length = rows["input_ids"].shape
    devices = training.open_devices(DeviceOptions(precision=precision))
    with devices.scope():
        model = BertClassifier(BertConfig.from_json_file(str(folder / "bert_config.json")), 2)
        optimizer = create_optimizer(LEARNING_RATE, num_train_steps=10_000, num_warmup_steps=1000)
        optimizer.build(model.trainable_variables)
    checkpoints.load_weights(model, str(folder / "bert_model.ckpt"))
    first_batch = {key: tf.constant(value[:BATCH_SIZE]) for key, value in rows.items()}
    np.save(folder / f"{name}.npy", model(first_batch, training=False)["logits"].numpy())
    dataset = read_dataset(
        str(folder / "train.tf_record"),
        (*sequence_features(length), Feature("label_ids"), Feature("is_real_example")),
        BATCH_SIZE,
        shuffle_seed=1,
        num_records=num_rows,
        repeat=True,
        trim_padding=True,
        **OURS[name],
    )
    step = training.make_train_step(
        training.TrainState(model, optimizer),
        training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"])),
        TrainingOptions(random_seed=1),
        devices,
        element_spec=dataset.element_spec,
    )
    batches = iter(dataset)

    def train() -> None:
        for batch in itertools.islice(batches, num_rows // BATCH_SIZE):
            metrics = step(batch, tf.constant(0))
        float(metrics["loss"])  # waits for the last step

    return train


def make_torch_trainer(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """Returns a function that trains on all rows once with Hugging Face's model."""
    from benchmarks.fine_tuning_torch import make_trainer

    return make_trainer(folder, BATCH_SIZE, LEARNING_RATE, precision, name, pad_to_max=THEIRS[name])


def make_timer(
    make_trainer: Callable[..., Callable[[], Any]], folder: Path, precision: str, name: str
) -> Callable[[], tuple[float, int]]:
    """Returns a function that trains on all rows once and returns seconds and peak bytes of RAM."""
    train = make_trainer(folder, precision, name)

    def measure() -> tuple[float, int]:
        start = time.perf_counter()
        train()
        return time.perf_counter() - start, timing.peak_bytes()

    return measure


def write_inputs(folder: Path, args: argparse.Namespace) -> None:
    """Writes the rows, weights and configuration for both models."""
    # Imported here because PyTorch and TensorFlow can conflict in one process.
    import keras

    from bert_tf import checkpoints, releases
    from bert_tf.data.features import Feature, label_ids_of, sequence_features
    from bert_tf.data.packing import convert_examples
    from bert_tf.data.records import write_records
    from bert_tf.modeling import BertClassifier
    from bert_tf.tasks.classification import glue
    from bert_tf.tokenization import FullTokenizer
    from bert_tf.tokenization.fast import BatchTokenizer

    task = glue.task_named("mrpc")
    examples = glue.GlueDataset(task, args.data_dir).read("train")[: args.rows]
    tokenizer = BatchTokenizer(FullTokenizer(str(args.vocab_file)))
    length = args.max_seq_length
    converted = convert_examples(examples, label_ids_of(examples, task.labels), length, tokenizer)
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    rows = {feature.name: converted[feature.name] for feature in features}
    if args.full_rows:
        fill_padding(rows)
    write_records(str(folder / "train.tf_record"), features, [rows])
    np.savez(folder / "rows.npz", **rows)
    config = releases.named(args.release).config()
    (folder / "bert_config.json").write_text(config.to_json_string())
    keras.utils.set_random_seed(1)
    variables = checkpoints.named_variables(BertClassifier(config, 2))
    values = {name: variable.numpy() for name, variable in variables.items()}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)
    np.savez(folder / "weights.npz", **values)


def fill_padding(rows: dict[str, np.ndarray]) -> None:
    """Replaces the padding of each row with repetitions of the row's tokens."""
    for ids, mask in zip(rows["input_ids"], rows["input_mask"], strict=True):
        ids[:] = np.resize(ids[: mask.sum()], len(ids))
        mask[:] = 1


def make_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags for model and data."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--vocab_file", type=Path, required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--release", default="uncased_L-12_H-768_A-12")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--full_rows", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


def main() -> None:
    """Compares and times both models; prints and writes the results."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--only_best", action="store_true")
    args = parser.parse_args()
    if args.only_best and args.precision == "float32":
        parser.error(
            "--only_best needs --precision=bfloat16: with float32, it would overwrite the results "
            "of all pairs"
        )
    pairs = PAIRS[1:2] if args.only_best else PAIRS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # A separate process, so that TensorFlow's memory is freed.
        timing.run_in_process(write_inputs, folder, args)
        measured: dict[tuple[str, str], dict[str, list[Any]]] = {}
        for pair in pairs:
            makers = {
                name: functools.partial(
                    make_timer,
                    make_bert_tf_trainer if name in OURS else make_torch_trainer,
                    folder,
                    args.precision,
                    name,
                )
                for name in pair
            }
            measured[pair] = timing.measure_in_processes(makers, args.rounds)
        logits = [np.load(folder / f"{name}.npy") for pair in pairs for name in pair]
        tokens = float(np.load(folder / "rows.npz")["input_mask"].sum(1).mean())
    difference = max(float(np.abs(logits[0] - other).max()) for other in logits)
    is_close = difference < (1e-4 if args.precision == "float32" else 5e-2)
    timing.require(is_close, f"the logits of the first batch differ by {difference}")
    results: dict[str, Any] = {
        "release": args.release,
        "rows": args.rows,
        "mean tokens per row": round(tokens, 1),
        "max_seq_length": args.max_seq_length,
        "batch_size": BATCH_SIZE,
        "precision": args.precision,
        "max logit difference": difference,
    }
    for (our_name, their_name), measurements in measured.items():
        seconds = {name: [second for second, _ in rounds] for name, rounds in measurements.items()}
        peak_gb = {name: rounds[-1][1] / 1e9 for name, rounds in measurements.items()}
        results[f"{our_name} than {their_name}"] = {
            "rows/s": {n: round(args.rows / statistics.median(s), 2) for n, s in seconds.items()},
            "times faster": round(timing.median_ratio(seconds[their_name], seconds[our_name]), 2),
            "peak GB": {name: round(gigabytes, 2) for name, gigabytes in peak_gb.items()},
            "times less memory": round(peak_gb[their_name] / peak_gb[our_name], 2),
        }
    print(results)
    timing.write_results(
        f"fine_tuning_{args.precision}", results, "tensorflow", "keras", "torch", "transformers"
    )


if __name__ == "__main__":
    main()
