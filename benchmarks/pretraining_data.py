"""Text to records for pre-training: the package's two modes and the plain way, on books.

usage: python benchmarks/pretraining_data.py --books=DIR --vocab_file=FILE [--mb=3] [--rounds=3]

A paragraph is a document; a sentence ends after `.`, `!` or `?` (and a closing quotation mark)
before white space. dupe_factor 5, 128 tokens, 20 predictions. The plain way and the identical mode
must give the same records; one and two workers the same bytes. Peak memory of a worker is measured
in processes of their own, on the text and on eight times as much.
"""

import argparse
import json
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tensorflow as tf

from benchmarks import plain, plain_pretraining, timing
from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks import pretraining_data
from bert_tf.tokenization import FullTokenizer

SETTINGS = {"dupe_factor": 5, "max_seq_length": 128, "max_predictions_per_seq": 20}


def paragraphs(text: str) -> str:
    """Sentences on lines, a blank line after each paragraph."""
    documents = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        sentences = re.split(r"(?<=[.!?])[\"”’']?\s+", " ".join(paragraph.split()))
        documents.append("\n".join(sentence for sentence in sentences if sentence))
    return "\n\n".join(document for document in documents if document) + "\n"


def peak_memory(text: Path, args: argparse.Namespace) -> float:
    """MB at most of a process that makes the records of a text with one worker."""
    command = [sys.executable, __file__, f"--vocab_file={args.vocab_file}", f"--only={text}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def make(text: str, output: str, vocab_file: str, num_workers: int, shard_mb: float = 0.5) -> None:
    """Runs the package."""
    pretraining_data.run(
        PretrainingDataOptions(
            input_file=text,
            output_file=output,
            vocab_file=vocab_file,
            num_workers=num_workers,
            shard_mb=shard_mb,
            **SETTINGS,
        )
    )


def main() -> None:
    """Compares, times, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--mb", type=float, default=3.0, help="of text that is timed")
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
    whole = paragraphs("\n\n".join(books))
    text = folder / "text.txt"
    text.write_text(whole[: int(args.mb * 1e6)], encoding="utf-8")
    outputs = {name: str(folder / name) for name in ("plain", "identical", "one", "two")}
    tokenizer = FullTokenizer(args.vocab_file)
    slow = plain.PlainTokenizer(tokenizer.vocab, True)

    def plainly() -> None:
        documents = plain_pretraining.read([str(text)], slow)
        vocab = list(tokenizer.vocab)
        instances = plain_pretraining.make(
            documents, vocab, random.Random(12345), *SETTINGS.values()
        )
        rows = plain_pretraining.rows(instances, tokenizer.vocab, *list(SETTINGS.values())[1:])
        plain.write_records(outputs["plain"], rows)

    works = {
        "plain": plainly,
        "identical": lambda: make(str(text), outputs["identical"], args.vocab_file, 0),
        "one": lambda: make(str(text), outputs["one"], args.vocab_file, 1),
        "two": lambda: make(str(text), outputs["two"], args.vocab_file, 2),
    }
    start = time.perf_counter()
    seconds = timing.interleaved(works, args.rounds)
    parsed = [
        [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(outputs[name])]
        for name in ("plain", "identical")
    ]
    timing.require(parsed[0] == parsed[1], "the identical mode makes the plain way's records")
    same = Path(outputs["one"]).read_bytes() == Path(outputs["two"]).read_bytes()
    timing.require(same, "two workers make the records of one")
    large = folder / "large.txt"
    large.write_text((text.read_text(encoding="utf-8") + "\n\n") * 8, encoding="utf-8")
    figures = {
        "MB": args.mb,
        "records": len(parsed[0]),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster than the plain way": {
            name: round(timing.ratio(seconds["plain"], seconds[name]), 2)
            for name in ("identical", "one", "two")
        },
        "two workers, times faster than one": round(
            timing.ratio(seconds["one"], seconds["two"]), 2
        ),
        "peak MB of a worker": round(peak_memory(text, args)),
        "the same, 8 times the text": round(peak_memory(large, args)),
        "seconds in all": round(time.perf_counter() - start),
    }
    print(figures)
    timing.write_results("pretraining_data", figures, "tensorflow", "tensorflow-text", "numpy")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
