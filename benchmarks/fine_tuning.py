"""Fine-tuning BERT on MRPC, rows/s, beside Hugging Face's BERT on PyTorch, with the same weights.

usage: python benchmarks/fine_tuning.py --vocab_file=FILE --data_dir=MRPC [--precision=bfloat16]
           [--release=uncased_L-12_H-768_A-12] [--rows=192] [--full_rows] [--rounds=5]
           [--only_best]

Sizes are those of a published model, weights are random: they are not what takes the time. Ours
with default flags cuts a batch behind its longest text; best flags are --length_grouping=true.
Theirs are padded to --max_seq_length, as in the example run_glue.py, or to the longest text of a
batch, as with DataCollatorWithPadding; AdamW, gradients clipped to a norm of 1. Logits of the first
batch are compared. Default against padded, then best and default against dynamic, two processes in
turn (four would need 30 GB for BERT-base), over the same rows, which are tokenized before. Memory
is the most that a process has had. --only_best is for processors without bfloat16, where a step of
theirs takes minutes: best flags against dynamic, and nothing else. Needs torch and transformers.
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

OURS = {"bert_tf": {}, "bert_tf, best flags": {"group_by_length": True}}
THEIRS = {"transformers, padded": True, "transformers, dynamic": False}
PAIRS = (
    ("bert_tf", "transformers, padded"),
    ("bert_tf, best flags", "transformers, dynamic"),
    ("bert_tf", "transformers, dynamic"),
)
BATCH, RATE = 32, 2e-5


def ours(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """All rows once through the training step of bert_tf."""
    from bert_tf.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    from bert_tf import checkpoint, training
    from bert_tf.config import BertConfig
    from bert_tf.data.input_pipeline import read_dataset
    from bert_tf.data.records import Feature, sequence_features
    from bert_tf.modeling import BertClassifier
    from bert_tf.modeling.losses import cross_entropy
    from bert_tf.optimization import create_optimizer

    rows = dict(np.load(folder / "rows.npz"))
    count, length = rows["input_ids"].shape
    training.set_precision(precision)
    model = BertClassifier(BertConfig.from_json_file(str(folder / "bert_config.json")), 2)
    checkpoint.restore(model, str(folder / "bert_model.ckpt"))
    first = {key: tf.constant(value[:BATCH]) for key, value in rows.items()}
    np.save(folder / f"{name}.npy", model(first, training=False)["logits"].numpy())
    optimizer = create_optimizer(RATE, 10_000, 1000)
    optimizer.build(model.trainable_variables)
    dataset = read_dataset(
        str(folder / "train.tf_record"),
        (*sequence_features(length), Feature("label_ids"), Feature("is_real_example")),
        BATCH,
        shuffle_seed=1,
        num_records=count,
        repeat=True,
        cut_padding=True,
        **OURS[name],
    )
    step = training.make_train_step(
        model,
        optimizer,
        training.mean_loss(lambda out, batch: cross_entropy(out["logits"], batch["label_ids"])),
        tf.distribute.get_strategy(),
        training.StepOptions(seed=1, skip_padding=True),
        element_spec=dataset.element_spec,
    )
    batches = iter(dataset)

    def work() -> None:
        for batch in itertools.islice(batches, count // BATCH):
            figures = step(batch, tf.constant(0))
        float(figures["loss"])

    return work


def theirs(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """All rows once through a training step of the peer."""
    from benchmarks.fine_tuning_torch import make_work

    return make_work(folder, BATCH, RATE, precision, name, padded=THEIRS[name])


def timed(
    make: Callable[..., Callable[[], Any]], folder: Path, precision: str, name: str
) -> Callable[[], tuple[float, int]]:
    """Gives the seconds of a piece of work, and the most memory that its process has had."""
    work = make(folder, precision, name)

    def measured() -> tuple[float, int]:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start, timing.peak_bytes()

    return measured


def write_inputs(folder: Path, args: argparse.Namespace) -> None:
    """Writes rows, weights and configuration for both."""
    # Only here: PyTorch and TensorFlow do not always get along in one process.
    import keras

    from bert_tf import checkpoint, releases
    from bert_tf.data.packing import convert_examples, label_ids_of
    from bert_tf.data.records import Feature, sequence_features, write_records
    from bert_tf.modeling import BertClassifier
    from bert_tf.tasks.classification import glue
    from bert_tf.tokenization import FullTokenizer
    from bert_tf.tokenization.fast import BatchTokenizer

    task = glue.task_named("mrpc")
    examples = glue.read_examples(task, "train", args.data_dir)[: args.rows]
    tokenizer = BatchTokenizer(FullTokenizer(str(args.vocab_file)))
    length = args.max_seq_length
    found = convert_examples(examples, label_ids_of(examples, task.labels), length, tokenizer)
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    rows = {feature.name: found[feature.name] for feature in features}
    if args.full_rows:
        fill(rows)
    write_records(str(folder / "train.tf_record"), features, [rows])
    np.savez(folder / "rows.npz", **rows)
    config = releases.named(args.release).config()
    (folder / "bert_config.json").write_text(config.to_json_string())
    keras.utils.set_random_seed(1)
    variables = checkpoint.named_variables(BertClassifier(config, 2))
    values = {name: variable.numpy() for name, variable in variables.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    np.savez(folder / "weights.npz", **values)


def fill(rows: dict[str, np.ndarray]) -> None:
    """Puts tokens where there is padding, again and again those of the row."""
    for ids, mask in zip(rows["input_ids"], rows["input_mask"], strict=True):
        ids[:] = np.resize(ids[: mask.sum()], len(ids))
        mask[:] = 1


def arguments(description: str) -> argparse.ArgumentParser:
    """The flags that say what is trained on."""
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
    """Compares, times, prints and writes the figures."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--only_best", action="store_true")
    args = parser.parse_args()
    if args.only_best and args.precision == "float32":
        parser.error("--only_best would write over the results of all pairs")
    pairs = PAIRS[1:2] if args.only_best else PAIRS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Where this process has TensorFlow, its memory is not free for the others.
        timing.in_a_process(write_inputs, folder, args)
        found: dict[tuple[str, str], dict[str, list[Any]]] = {}
        for pair in pairs:
            makers = {
                name: functools.partial(
                    timed, ours if name in OURS else theirs, folder, args.precision, name
                )
                for name in pair
            }
            found[pair] = timing.interleaved_figures(makers, args.rounds)
        logits = [np.load(folder / f"{name}.npy") for pair in pairs for name in pair]
        tokens = float(np.load(folder / "rows.npz")["input_mask"].sum(1).mean())
    difference = max(float(np.abs(logits[0] - other).max()) for other in logits)
    same = difference < (1e-4 if args.precision == "float32" else 5e-2)
    timing.require(same, f"logits of the first batch are the same ({difference})")
    figures: dict[str, Any] = {
        "sizes of": args.release,
        "rows": args.rows,
        "mean tokens of a row": round(tokens, 1),
        "max_seq_length": args.max_seq_length,
        "batch_size": BATCH,
        "precision": args.precision,
        "largest difference of logits": difference,
    }
    for (mine, other), rows in found.items():
        seconds = {name: [second for second, _ in figure] for name, figure in rows.items()}
        peak = {name: figure[-1][1] / 1e9 for name, figure in rows.items()}
        figures[f"{mine} than {other}"] = {
            "rows/s": {n: round(args.rows / statistics.median(s), 2) for n, s in seconds.items()},
            "times faster": round(timing.ratio(seconds[other], seconds[mine]), 2),
            "GB at most": {name: round(gigabytes, 2) for name, gigabytes in peak.items()},
            "times less memory": round(peak[other] / peak[mine], 2),
        }
    print(figures)
    timing.write_results(
        f"fine_tuning_{args.precision}", figures, "tensorflow", "keras", "torch", "transformers"
    )


if __name__ == "__main__":
    main()
