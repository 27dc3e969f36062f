"""Times the creation of pre-training data from books, against the original algorithm.

usage: python benchmarks/pretraining_data.py --books=DIR --vocab_file=FILE [--rounds=5]

Each paragraph is a document; sentences are split as in `examples/small_bert/make.py`. All books are
used, with dupe_factor 5, 128 tokens and 20 predictions. Each method runs in a separate process and
is timed after its imports. The baseline and the identical mode must write the same records, and one
and two workers the same bytes. Peak memory is that of one worker, for the text and for eight copies
of it. The baseline is also timed, including imports, on the text with which the original program
was timed: 1,000,000 bytes of two novels without blank lines. TMPDIR=/dev/shm avoids the disk.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import timing

SETTINGS = {"dupe_factor": 5, "max_seq_length": 128, "max_predictions_per_seq": 20}
SHARD_MB = 0.1
WORKERS = {"identical": 0, "one worker": 1, "two workers": 2}
NOVELS = ("pg1342.txt", "pg98.txt")
# Time of the original program on a different machine.
ORIGINAL_SECONDS = 6.2


def run_method(method: str, text: str, output: str, vocab_file: str) -> None:
    """Writes records in this process; prints seconds and peak MB."""
    # As in the script.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import tensorflow_text  # noqa: F401

    from benchmarks import baseline_pretraining
    from bert_tf.options import PretrainingDataOptions
    from bert_tf.tasks.pretraining import create_data
    from bert_tf.tokenization import load_vocab

    start = time.perf_counter()
    if method == "baseline":
        baseline_pretraining.create_records(text, output, load_vocab(vocab_file), **SETTINGS)
    else:
        options = PretrainingDataOptions(
            input_file=text,
            output_file=output,
            vocab_file=vocab_file,
            num_workers=WORKERS[method],
            shard_mb=SHARD_MB,
            **SETTINGS,
        )
        create_data.run(options)
    seconds = time.perf_counter() - start
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    print(json.dumps([seconds, int(peak[1]) / 1024 if peak else 0]))


class MethodRunner:
    """Runs each method in a separate process.

    Args:
        vocab_file: path of the vocabulary.
        folder: folder for the record files, which have the methods' names.
    """

    def __init__(self, vocab_file: str, folder: Path) -> None:
        self._vocab_file, self.folder = vocab_file, folder

    def run(self, method: str, text: Path) -> tuple[float, float]:
        """Runs a method; returns seconds and peak MB."""
        output = self.folder / method
        command = [sys.executable, __file__, method, str(text), str(output), self._vocab_file]
        process = subprocess.run(command, capture_output=True, text=True)
        timing.require(process.returncode == 0, process.stderr)
        return tuple(json.loads(process.stdout.splitlines()[-1]))


def compare_methods(runner: MethodRunner, text: Path, rounds: int) -> dict:
    """Times all methods in turn and compares their records."""
    seconds: dict[str, list[float]] = {method: [] for method in ("baseline", *WORKERS)}
    for number in range(rounds + 1):
        for method, times in seconds.items():
            elapsed, _ = runner.run(method, text)
            # The first round fills the file cache.
            if number:
                times.append(elapsed)
    records = read_records(runner.folder / "baseline")
    is_equal = records == read_records(runner.folder / "identical")
    timing.require(is_equal, "the records of the identical mode differ from the baseline's")
    one, two = ((runner.folder / name).read_bytes() for name in ("one worker", "two workers"))
    timing.require(one == two, "the records of two workers differ from those of one")
    times_faster = {
        m: round(timing.median_ratio(seconds["baseline"], seconds[m]), 2) for m in WORKERS
    }
    return {
        "MB": round(text.stat().st_size / 1e6, 2),
        "records": len(records),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster than the baseline": times_faster,
        "two workers, times faster than one": round(
            timing.median_ratio(seconds["one worker"], seconds["two workers"]), 2
        ),
    }


def read_records(path: Path) -> list:
    """Parses the records of a file."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in records]


def compare_with_original(runner: MethodRunner, books: Path) -> dict:
    """Times the baseline on the text with which the original program was timed."""
    lines = "\n".join((books / name).read_text(encoding="utf-8") for name in NOVELS).split("\n")
    text = runner.folder / "novels.txt"
    text.write_bytes("\n".join(line for line in lines if line.strip()).encode()[:1_000_000])
    seconds, seconds_with_imports = [], []
    for _ in range(3):
        start = time.perf_counter()
        seconds.append(runner.run("baseline", text)[0])
        seconds_with_imports.append(time.perf_counter() - start)
    return {
        "baseline on two novels, seconds": round(statistics.median(seconds), 2),
        "with imports, seconds": round(statistics.median(seconds_with_imports), 2),
        "original program on another machine, seconds": ORIGINAL_SECONDS,
    }


def main() -> None:
    """Compares and times all methods; prints and writes the results."""
    if len(sys.argv) == 5 and sys.argv[1] in ("baseline", *WORKERS):
        run_method(*sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    from examples.small_bert.make import split_into_documents

    with tempfile.TemporaryDirectory() as name:
        runner = MethodRunner(args.vocab_file, Path(name))
        books = [path.read_text(encoding="utf-8") for path in sorted(args.books.glob("*.txt"))]
        text, large_text = runner.folder / "text.txt", runner.folder / "large.txt"
        documents = [document for book in books for document in split_into_documents(book)]
        text.write_text("\n\n".join(documents), encoding="utf-8")
        results = compare_with_original(runner, args.books)
        print(results, flush=True)
        results |= compare_methods(runner, text, args.rounds)
        results["peak MB of one worker"] = round(runner.run("one worker", text)[1])
        print(results, flush=True)
        large_text.write_text((text.read_text(encoding="utf-8") + "\n\n") * 8, encoding="utf-8")
        measurements = {
            name: runner.run(name, large_text) for name in ("one worker", "two workers")
        }
        results["8 times the text"] = {
            "seconds": {name: round(seconds, 2) for name, (seconds, _) in measurements.items()},
            "peak MB of one worker": round(measurements["one worker"][1]),
        }
    print(results)
    timing.write_results("pretraining_data", results, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
