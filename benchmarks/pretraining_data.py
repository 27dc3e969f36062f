"""Times the creation of pre-training data from books, against the original's method.

usage: python benchmarks/pretraining_data.py --books=DIR --vocab_file=FILE [--rounds=5]

Each paragraph is a document; sentences are split as in `examples/small_bert/make.py`. All books are
used, with dupe_factor 5, 128 tokens and 20 predictions. Each method runs in a separate process and
is timed after its imports. The plain method and the identical mode must write the same records, and
one and two workers the same bytes. Peak memory is that of one worker, for the text and for eight
copies of it. The plain method is also timed on the text that the original was timed on: 1,000,000
bytes of two novels without blank lines, with imports. TMPDIR=/dev/shm avoids the disk.
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
# Time of the original's program, on a different machine.
RECORDED_SECONDS = 6.2


def work(method: str, text: str, output: str, vocab_file: str) -> None:
    """Writes records in this process; prints seconds and peak MB."""
    # As the script does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import tensorflow_text  # noqa: F401

    from benchmarks import plain_pretraining
    from bert_tf.options import PretrainingDataOptions
    from bert_tf.tasks.pretraining import create_data
    from bert_tf.tokenization import load_vocab

    start = time.perf_counter()
    if method == "plain":
        plain_pretraining.make_records(text, output, load_vocab(vocab_file), **SETTINGS)
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


class Methods:
    """Runs methods in separate processes.

    Args:
        vocab_file: path of the vocabulary.
        folder: folder for the record files, which are named after the methods.
    """

    def __init__(self, vocab_file: str, folder: Path) -> None:
        self._vocab_file, self.folder = vocab_file, folder

    def run(self, method: str, text: Path) -> tuple[float, float]:
        """Runs a method; returns seconds and peak MB."""
        output = self.folder / method
        command = [sys.executable, __file__, method, str(text), str(output), self._vocab_file]
        done = subprocess.run(command, capture_output=True, text=True)
        timing.require(done.returncode == 0, done.stderr)
        return tuple(json.loads(done.stdout.splitlines()[-1]))


def compare(methods: Methods, text: Path, rounds: int) -> dict:
    """Times all methods in turn and compares their records."""
    seconds: dict[str, list[float]] = {method: [] for method in ("plain", *WORKERS)}
    for number in range(rounds + 1):
        for method, times in seconds.items():
            elapsed, _ = methods.run(method, text)
            # The first round only fills the file cache.
            if number:
                times.append(elapsed)
    records = read(methods.folder / "plain")
    is_equal = records == read(methods.folder / "identical")
    timing.require(is_equal, "the records of the identical mode differ from the plain method's")
    one, two = ((methods.folder / name).read_bytes() for name in ("one worker", "two workers"))
    timing.require(one == two, "the records of two workers differ from those of one")
    times_faster = {m: round(timing.ratio(seconds["plain"], seconds[m]), 2) for m in WORKERS}
    return {
        "MB": round(text.stat().st_size / 1e6, 2),
        "records": len(records),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster than the plain way": times_faster,
        "two workers, times faster than one": round(
            timing.ratio(seconds["one worker"], seconds["two workers"]), 2
        ),
    }


def read(path: Path) -> list:
    """Returns the parsed records of a file."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in records]


def compare_with_original(methods: Methods, books: Path) -> dict:
    """Times the plain method on the text that the original was timed on."""
    lines = "\n".join((books / name).read_text(encoding="utf-8") for name in NOVELS).split("\n")
    text = methods.folder / "novels.txt"
    text.write_bytes("\n".join(line for line in lines if line.strip()).encode()[:1_000_000])
    seconds, seconds_with_imports = [], []
    for _ in range(3):
        start = time.perf_counter()
        seconds.append(methods.run("plain", text)[0])
        seconds_with_imports.append(time.perf_counter() - start)
    return {
        "the plain way on two novels, seconds": round(statistics.median(seconds), 2),
        "with its imports": round(statistics.median(seconds_with_imports), 2),
        "the original's program, on another machine": RECORDED_SECONDS,
    }


def main() -> None:
    """Compares and times all methods; prints and writes the results."""
    if len(sys.argv) == 5 and sys.argv[1] in ("plain", *WORKERS):
        work(*sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    from examples.small_bert.make import documents

    with tempfile.TemporaryDirectory() as name:
        methods = Methods(args.vocab_file, Path(name))
        books = [path.read_text(encoding="utf-8") for path in sorted(args.books.glob("*.txt"))]
        text, large = methods.folder / "text.txt", methods.folder / "large.txt"
        text.write_text("\n\n".join(d for b in books for d in documents(b)), encoding="utf-8")
        results = compare_with_original(methods, args.books)
        print(results, flush=True)
        results |= compare(methods, text, args.rounds)
        results["peak MB of one worker"] = round(methods.run("one worker", text)[1])
        print(results, flush=True)
        large.write_text((text.read_text(encoding="utf-8") + "\n\n") * 8, encoding="utf-8")
        measured = {name: methods.run(name, large) for name in ("one worker", "two workers")}
        results["8 times the text"] = {
            "seconds": {name: round(seconds, 2) for name, (seconds, _) in measured.items()},
            "peak MB of one worker": round(measured["one worker"][1]),
        }
    print(results)
    timing.write_results("pretraining_data", results, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
