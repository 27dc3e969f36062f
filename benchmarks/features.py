"""Times converting a TSV file to TFRecords, in rows/s, against the original BERT's algorithm.

usage: python benchmarks/features.py --vocab_file=FILE --data_dir=SST-2 [--rounds=3]

bert_tf converts all rows of SST-2's train.tsv (text, label) on all cores, the original algorithm
every 20th row; the rows are read in advance. Both write the records that run_classifier.py trains
on. First, the records of the same rows are compared.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import baseline, timing
from bert_tf.data.features import Feature, InputExample, label_ids_of, sequence_features
from bert_tf.data.packing import convert_examples
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.data.records import write_records
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# The baseline converts every 20th row.
BASELINE_STRIDE = 20
CHUNK_ROWS = 1024


def read_rows(data_dir: Path) -> list[tuple[str, str]]:
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
    rows, length = read_rows(args.data_dir), args.max_seq_length
    sample = rows[::BASELINE_STRIDE]
    tokenizer = FullTokenizer(args.vocab_file)
    baseline_tokenizer = baseline.BaselineTokenizer(tokenizer.vocab, True)
    batch_tokenizer = BatchTokenizer(tokenizer)
    features = (*sequence_features(length), Feature("label_ids"), Feature("is_real_example"))
    folder = tempfile.TemporaryDirectory()
    our_path, baseline_path = f"{folder.name}/ours.tf_record", f"{folder.name}/baseline.tf_record"

    def convert_chunk(chunk: list[InputExample]) -> dict[str, np.ndarray]:
        labels = label_ids_of(chunk, ("0", "1"))
        arrays = convert_examples(chunk, labels, length, batch_tokenizer)
        return {feature.name: arrays[feature.name] for feature in features}

    def convert(rows: list[tuple[str, str]]) -> None:
        examples = [InputExample(str(i), text, label=label) for i, (text, label) in enumerate(rows)]
        write_records(our_path, features, map_in_order(convert_chunk, chunks(examples, CHUNK_ROWS)))

    def convert_with_baseline() -> None:
        packed = (
            baseline.pack(baseline_tokenizer.encode(text), length, tokenizer.vocab)
            | {"label_ids": [int(label)], "is_real_example": [1]}
            for text, label in sample
        )
        baseline.write_records(baseline_path, packed)

    convert(sample)
    convert_with_baseline()
    parsed = [
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(path)]
        for path in (our_path, baseline_path)
    ]
    timing.require(parsed[0] == parsed[1], "the records differ")

    num_rows = {"bert_tf": len(rows), "original": len(sample)}
    methods = {"bert_tf": lambda: convert(rows), "original": convert_with_baseline}
    seconds = timing.time_interleaved(methods, args.rounds)
    per_row = {name: [s / num_rows[name] for s in times] for name, times in seconds.items()}
    results = {
        "rows": len(rows),
        "max_seq_length": length,
        "rows/s": {name: round(1 / statistics.median(s)) for name, s in per_row.items()},
        "times faster": round(timing.median_ratio(per_row["original"], per_row["bert_tf"]), 1),
        "seconds for all rows": round(float(np.median(seconds["bert_tf"])), 2),
    }
    print(results)
    timing.write_results("features", results, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
