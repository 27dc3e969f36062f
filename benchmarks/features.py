"""Times the conversion of a TSV file to TFRecords, in rows/s, against the original's method.

usage: python benchmarks/features.py --vocab_file=FILE --data_dir=SST-2 [--rounds=3]

Converts all rows of SST-2's train.tsv (text, label) from memory, on all cores. Both methods write
the records that run_classifier.py trains on; the records are compared first.
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
from bert_tf.data.feature_specs import Feature, sequence_features
from bert_tf.data.features import InputExample, label_ids_of
from bert_tf.data.packing import convert_examples
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.data.records import write_records
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# The plain method converts every 20th row.
PLAIN_STRIDE = 20
CHUNK_ROWS = 1024


def read(data_dir: Path) -> list[tuple[str, str]]:
    """Returns the (text, label) pairs of the training set."""
    lines = (data_dir / "train.tsv").read_text(encoding="utf-8").split("\n")[1:]
    return [tuple(line.split("\t")) for line in lines if line]


def main() -> None:
    """Compares and times both methods; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows, length = read(args.data_dir), args.max_seq_length
    sample = rows[::PLAIN_STRIDE]
    tokenizer = FullTokenizer(args.vocab_file)
    slow, fast = plain.PlainTokenizer(tokenizer.vocab, True), BatchTokenizer(tokenizer)
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    folder = tempfile.TemporaryDirectory()
    ours, theirs = f"{folder.name}/ours.tf_record", f"{folder.name}/plain.tf_record"

    def convert(chunk: list[InputExample]) -> dict[str, np.ndarray]:
        rows = convert_examples(chunk, label_ids_of(chunk, ("0", "1")), length, fast)
        return {feature.name: rows[feature.name] for feature in features}

    def convert_fast(rows: list[tuple[str, str]]) -> None:
        examples = [InputExample(str(n), text, label=label) for n, (text, label) in enumerate(rows)]
        write_records(ours, features, map_in_order(convert, chunks(examples, CHUNK_ROWS)))

    def convert_plainly() -> None:
        packed = (
            plain.pack(slow.encode(text), length, tokenizer.vocab)
            | {"label_ids": [int(label)], "is_real_example": [1]}
            for text, label in sample
        )
        plain.write_records(theirs, packed)

    convert_fast(sample)
    convert_plainly()
    parsed = [
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]
        for path in (ours, theirs)
    ]
    timing.require(parsed[0] == parsed[1], "the records differ")

    count = {"bert_tf": len(rows), "the original's way": len(sample)}
    methods = {"bert_tf": lambda: convert_fast(rows), "the original's way": convert_plainly}
    seconds = timing.interleaved(methods, args.rounds)
    per_row = {name: [s / count[name] for s in times] for name, times in seconds.items()}
    results = {
        "rows": len(rows),
        "max_seq_length": length,
        "rows/s": {name: round(1 / statistics.median(s)) for name, s in per_row.items()},
        "times faster": round(timing.ratio(per_row["the original's way"], per_row["bert_tf"]), 1),
        "seconds for all rows": round(float(np.median(seconds["bert_tf"])), 2),
    }
    print(results)
    timing.write_results("features", results, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
