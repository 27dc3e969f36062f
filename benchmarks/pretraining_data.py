"""Text to records for pre-training: the package's two modes and the plain way, on books.

usage: python benchmarks/pretraining_data.py --books=DIR --vocab_file=FILE [--rounds=5]

A paragraph is a document; a sentence ends as `examples/small_bert/make.py` says. dupe_factor 5, 128
tokens, 20 predictions, all books. Every way is a process of its own, as the script is, timed from
after its imports to its end. The plain way and the identical mode must give the same records; one
and two workers the same bytes. Peak memory is that of one worker, on the text and on eight times as
much. The plain way is also timed on what the original was timed on, 1,000,000 bytes of two novels
without blank lines, with its imports. TMPDIR=/dev/shm keeps the disk out of it.
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
# Of the original's own program, on another machine.
RECORDED_SECONDS = 6.2


def work(way: str, text: str, output: str, vocab_file: str) -> None:
    """Makes records in this process, and prints seconds and peak MB."""
    # As the script does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import tensorflow_text  # noqa: F401

    from benchmarks import plain_pretraining
    from bert_tf.options import PretrainingDataOptions
    from bert_tf.tasks.pretraining import create_data
    from bert_tf.tokenization import load_vocab

    start = time.perf_counter()
    if way == "plain":
        plain_pretraining.make_records(text, output, load_vocab(vocab_file), **SETTINGS)
    else:
        options = PretrainingDataOptions(
            input_file=text,
            output_file=output,
            vocab_file=vocab_file,
            num_workers=WORKERS[way],
            shard_mb=SHARD_MB,
            **SETTINGS,
        )
        create_data.run(options)
    seconds = time.perf_counter() - start
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    print(json.dumps([seconds, int(peak[1]) / 1024 if peak else 0]))


class Ways:
    """Starts processes.

    Args:
        vocab_file: path.
        folder: where the records go, under the names of the ways.
    """

    def __init__(self, vocab_file: str, folder: Path) -> None:
        self._vocab_file, self.folder = vocab_file, folder

    def run(self, way: str, text: Path) -> tuple[float, float]:
        """Seconds and peak MB of a way."""
        output = self.folder / way
        command = [sys.executable, __file__, way, str(text), str(output), self._vocab_file]
        done = subprocess.run(command, capture_output=True, text=True)
        timing.require(done.returncode == 0, done.stderr)
        return tuple(json.loads(done.stdout.splitlines()[-1]))


def compare(ways: Ways, text: Path, rounds: int) -> dict:
    """Times all ways in turn, and compares what they made."""
    seconds: dict[str, list[float]] = {way: [] for way in ("plain", *WORKERS)}
    for number in range(rounds + 1):
        for way, times in seconds.items():
            found, _ = ways.run(way, text)
            # The first round reads what later ones find in the system's cache.
            if number:
                times.append(found)
    records = read(ways.folder / "plain")
    same = records == read(ways.folder / "identical")
    timing.require(same, "the identical mode makes the plain way's records")
    one, two = ((ways.folder / way).read_bytes() for way in ("one worker", "two workers"))
    timing.require(one == two, "two workers make the records of one")
    times_faster = {way: round(timing.ratio(seconds["plain"], seconds[way]), 2) for way in WORKERS}
    return {
        "MB": round(text.stat().st_size / 1e6, 2),
        "records": len(records),
        "seconds": {way: round(statistics.median(s), 2) for way, s in seconds.items()},
        "times faster than the plain way": times_faster,
        "two workers, times faster than one": round(
            timing.ratio(seconds["one worker"], seconds["two workers"]), 2
        ),
    }


def read(path: Path) -> list:
    """Records, parsed."""
    import tensorflow as tf

    found = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in found]


def compare_with_the_record(ways: Ways, books: Path) -> dict:
    """Times the plain way on what the original was timed on."""
    lines = "\n".join((books / name).read_text(encoding="utf-8") for name in NOVELS).split("\n")
    text = ways.folder / "novels.txt"
    text.write_bytes("\n".join(line for line in lines if line.strip()).encode()[:1_000_000])
    both = []
    for _ in range(3):
        start = time.perf_counter()
        seconds, _ = ways.run("plain", text)
        both.append((time.perf_counter() - start, seconds))
    return {
        "the plain way on two novels, seconds": round(statistics.median(b for _, b in both), 2),
        "with its imports": round(statistics.median(a for a, _ in both), 2),
        "the original's program, on another machine": RECORDED_SECONDS,
    }


def main() -> None:
    """Compares, times, prints and writes the figures."""
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
        ways = Ways(args.vocab_file, Path(name))
        books = [path.read_text(encoding="utf-8") for path in sorted(args.books.glob("*.txt"))]
        text, large = ways.folder / "text.txt", ways.folder / "large.txt"
        text.write_text("\n\n".join(d for b in books for d in documents(b)), encoding="utf-8")
        figures = compare_with_the_record(ways, args.books)
        print(figures, flush=True)
        figures |= compare(ways, text, args.rounds)
        figures["peak MB of one worker"] = round(ways.run("one worker", text)[1])
        print(figures, flush=True)
        large.write_text((text.read_text(encoding="utf-8") + "\n\n") * 8, encoding="utf-8")
        found = {way: ways.run(way, large) for way in ("one worker", "two workers")}
        figures["8 times the text"] = {
            "seconds": {way: round(seconds, 2) for way, (seconds, _) in found.items()},
            "peak MB of one worker": round(found["one worker"][1]),
        }
    print(figures)
    timing.write_results("pretraining_data", figures, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
