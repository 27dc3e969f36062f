"""A TSV file to TFRecords: rows/s of the package and of the plain way, on all cores.

usage: python benchmarks/features.py --vocab_file=FILE --data_dir=SST-2 [--rounds=3]

All rows of train.tsv (text, label) of SST-2, in memory. Both ways make the records that
run_classifier.py trains on; they are parsed and compared before anything is timed.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import plain, timing
from bert_tf.data.features import InputExample
from bert_tf.data.packing import convert_examples, label_ids_of
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.data.records import Feature, sequence_features, write_records
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# The plain way gets every so many-th row.
EVERY = 20
TOGETHER = 1024


def read(data_dir: Path) -> list[tuple[str, str]]:
    """Texts and labels."""
    lines = (data_dir / "train.tsv").read_text(encoding="utf-8").split("\n")[1:]
    return [tuple(line.split("\t")) for line in lines if line]


def main() -> None:
    """Compares, times, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows, length = read(args.data_dir), args.max_seq_length
    part = rows[::EVERY]
    tokenizer = FullTokenizer(args.vocab_file)
    slow, fast = plain.PlainTokenizer(tokenizer.vocab, True), BatchTokenizer(tokenizer)
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    folder = tempfile.TemporaryDirectory()
    ours, theirs = f"{folder.name}/ours.tf_record", f"{folder.name}/plain.tf_record"

    def convert(some: list[InputExample]) -> dict[str, np.ndarray]:
        found = convert_examples(some, label_ids_of(some, ("0", "1")), length, fast)
        return {feature.name: found[feature.name] for feature in features}

    def package(rows: list[tuple[str, str]]) -> None:
        examples = [InputExample(str(n), text, label=label) for n, (text, label) in enumerate(rows)]
        write_records(ours, features, map_in_order(convert, chunks(examples, TOGETHER)))

    def plainly() -> None:
        packed = (
            plain.pack(slow.encode(text), length, tokenizer.vocab)
            | {"label_ids": [int(label)], "is_real_example": [1]}
            for text, label in part
        )
        plain.write_records(theirs, packed)

    package(part)
    plainly()
    parsed = [
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]
        for path in (ours, theirs)
    ]
    timing.require(parsed[0] == parsed[1], "both write the same records")

    count = {"bert_tf": len(rows), "the original's way": len(part)}
    works = {"bert_tf": lambda: package(rows), "the original's way": plainly}
    seconds = timing.interleaved(works, args.rounds)
    per_row = {name: [s / count[name] for s in times] for name, times in seconds.items()}
    figures = {
        "rows": len(rows),
        "max_seq_length": length,
        "rows/s": {name: round(1 / statistics.median(s)) for name, s in per_row.items()},
        "times faster": round(timing.ratio(per_row["the original's way"], per_row["bert_tf"]), 1),
        "seconds for all rows": round(float(np.median(seconds["bert_tf"])), 2),
    }
    print(figures)
    timing.write_results("features", figures, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
