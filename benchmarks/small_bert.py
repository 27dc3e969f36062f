"""What the pre-training of examples/small_bert brings on a small task, against random weights.

usage: python benchmarks/small_bert.py --data_dir=SST-2 [--rows=2000] [--seeds=5]

Fine-tunes on the first rows of SST-2's train.tsv (text, label), evaluates on its dev.tsv, from the
small BERT and from random values, with the same seeds, by run_classifier.py. SST-2 is put into the
columns of CoLA.
"""

import argparse
import csv
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import timing

ROOT = Path(__file__).resolve().parents[1]
SMALL_BERT = ROOT / "examples" / "small_bert"


def to_cola(source: Path, target: Path, rows: int | None) -> None:
    """Writes rows of SST-2 in the columns of CoLA."""
    with open(source, encoding="utf-8", newline="") as file:
        found = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    lines = [f"{n}\t{label}\ta\t{text}\n" for n, (text, label) in enumerate(found[:rows])]
    target.write_text("".join(lines), encoding="utf-8")


def accuracy(data_dir: Path, output_dir: Path, seed: int, flags: list[str]) -> float:
    """Of the dev set, after a training."""
    command = [sys.executable, "run_classifier.py", "--task_name=cola", "--do_train=true"]
    command += ["--do_eval=true", "--max_seq_length=64", "--num_train_epochs=4"]
    command += ["--learning_rate=3e-4", f"--random_seed={seed}", f"--data_dir={data_dir}"]
    command += [f"--output_dir={output_dir}", f"--vocab_file={SMALL_BERT}/vocab.txt"]
    command += [f"--bert_config_file={SMALL_BERT}/bert_config.json", *flags]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    lines = (output_dir / "eval_results.txt").read_text().splitlines()
    return float(dict(line.split(" = ") for line in lines)["eval_accuracy"])


def main() -> None:
    """Trains, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    starts = {"pre-trained": [f"--init_checkpoint={SMALL_BERT}/bert_model.ckpt"], "random": []}
    found: dict[str, list[float]] = {name: [] for name in starts}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        to_cola(args.data_dir / "train.tsv", folder / "train.tsv", args.rows)
        to_cola(args.data_dir / "dev.tsv", folder / "dev.tsv", None)
        for seed in range(1, args.seeds + 1):
            for start, flags in starts.items():
                found[start].append(accuracy(folder, folder / f"{start}-{seed}", seed, flags))
                print(seed, start, found[start][-1], flush=True)
    gains = [a - b for a, b in zip(found["pre-trained"], found["random"], strict=True)]
    gain = statistics.mean(gains)
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    figures = {
        "rows": args.rows,
        "accuracy on the dev set": found,
        "gain": round(gain, 4),
        "standard error": round(error, 4),
        "gain in standard errors": round(gain / error, 1),
    }
    print(figures)
    timing.write_results("small_bert", figures, "tensorflow")


if __name__ == "__main__":
    main()
