"""Text to records for pre-training: the package's two modes and the plain way, on books.

usage: python benchmarks/pretraining_data.py --books=DIR --vocab_file=FILE [--rounds=3]

A paragraph is a document; a sentence ends as `examples/small_bert/make.py` says. dupe_factor 5, 128
tokens, 20 predictions, all books. The plain way and the identical mode must give the same records;
one and two workers the same bytes. Peak memory of a worker is measured in a process of its own, on
the text and on eight times as much. The plain way is also timed on what the original was timed on:
1,000,000 bytes of two novels without blank lines.
"""

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tensorflow as tf

from benchmarks import plain, plain_pretraining, timing
from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks import pretraining_data
from bert_tf.tokenization import FullTokenizer
from examples.small_bert.make import documents

SETTINGS = {"dupe_factor": 5, "max_seq_length": 128, "max_predictions_per_seq": 20}
NOVELS = ("pg1342.txt", "pg98.txt")
# Of the original's own program, on another machine.
RECORDED_SECONDS = 6.2


def make(text: str, output: str, vocab_file: str, num_workers: int) -> None:
    """Runs the package."""
    pretraining_data.run(
        PretrainingDataOptions(
            input_file=text,
            output_file=output,
            vocab_file=vocab_file,
            num_workers=num_workers,
            shard_mb=0.25,
            **SETTINGS,
        )
    )


def make_plainly(text: str, output: str, vocab_file: str) -> None:
    """Does what the original does, line by line."""
    vocab = FullTokenizer(vocab_file).vocab
    read = plain_pretraining.read([text], plain.PlainTokenizer(vocab, True))
    draws = random.Random(12345)
    instances = plain_pretraining.make(read, list(vocab), draws, *SETTINGS.values())
    rows = plain_pretraining.rows(instances, vocab, *list(SETTINGS.values())[1:])
    plain.write_records(output, rows)


def peak_memory(text: Path, vocab_file: str) -> int:
    """MB at most of a process that makes the records of a text with one worker."""
    command = [sys.executable, __file__, f"--vocab_file={vocab_file}", f"--only={text}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return round(json.loads(done.stdout.splitlines()[-1]))


def compare(text: Path, folder: Path, vocab_file: str, rounds: int) -> dict:
    """Times all ways, and compares what they made."""
    outputs = {name: str(folder / name) for name in ("plain", "identical", "one", "two")}
    workers = {"identical": 0, "one": 1, "two": 2}
    works = {
        name: lambda name=name: make(str(text), outputs[name], vocab_file, workers[name])
        for name in workers
    }
    works = {"plain": lambda: make_plainly(str(text), outputs["plain"], vocab_file), **works}
    seconds = timing.interleaved(works, rounds)
    parsed = [
        [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(outputs[name])]
        for name in ("plain", "identical")
    ]
    timing.require(parsed[0] == parsed[1], "the identical mode makes the plain way's records")
    same = Path(outputs["one"]).read_bytes() == Path(outputs["two"]).read_bytes()
    timing.require(same, "two workers make the records of one")
    return {
        "MB": round(text.stat().st_size / 1e6, 2),
        "records": len(parsed[0]),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster than the plain way": {
            name: round(timing.ratio(seconds["plain"], seconds[name]), 2) for name in workers
        },
        "two workers, times faster than one": round(
            timing.ratio(seconds["one"], seconds["two"]), 2
        ),
    }


def compare_with_the_record(books: Path, folder: Path, vocab_file: str) -> dict:
    """Times the plain way on what the original was timed on."""
    lines = "\n".join((books / name).read_text(encoding="utf-8") for name in NOVELS).split("\n")
    text = folder / "novels.txt"
    text.write_bytes("\n".join(line for line in lines if line.strip()).encode()[:1_000_000])
    work = {"plain": lambda: make_plainly(str(text), str(folder / "novels"), vocab_file)}
    seconds = statistics.median(timing.interleaved(work, 3)["plain"])
    return {
        "the plain way on two novels, seconds": round(seconds, 2),
        "the original there, on another machine": RECORDED_SECONDS,
    }


def main() -> None:
    """Compares, times, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="make the records of this file, print the peak memory")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    if args.only:
        make(args.only, str(folder / "out"), args.vocab_file, 1)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        shutil.rmtree(folder)
        return
    books = [path.read_text(encoding="utf-8") for path in sorted(args.books.glob("*.txt"))]
    text, large = folder / "text.txt", folder / "large.txt"
    text.write_text("\n\n".join(d for book in books for d in documents(book)), encoding="utf-8")
    figures = compare_with_the_record(args.books, folder, args.vocab_file)
    print(figures, flush=True)
    figures |= compare(text, folder, args.vocab_file, args.rounds)
    large.write_text((text.read_text(encoding="utf-8") + "\n\n") * 8, encoding="utf-8")
    figures |= {
        "peak MB of a worker": peak_memory(text, args.vocab_file),
        "the same, 8 times the text": peak_memory(large, args.vocab_file),
    }
    print(figures)
    timing.write_results("pretraining_data", figures, "tensorflow", "tensorflow-text", "numpy")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
