"""Times tokenization on one core, in MB/s, against `tokenizers` and the original algorithm.

usage: python benchmarks/tokenizer.py --vocab_dir=DIR [--books=DIR] [--rounds=5]

The texts are English books (*.txt in --books), tokenized with uncased_en_vocab.txt, and random
words of multi_cased_vocab.txt, sampled equally from all scripts with --seed, tokenized both cased
and lower-cased (which strips accents). The ids of all methods are compared first; lines on which
`tokenizers` differs from the original are counted, but not omitted. The methods alternate, each in
a separate process. Needs the extra `benchmark`.
"""

import argparse
import functools
import random
import statistics
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tokenizers import BertWordPieceTokenizer

from benchmarks import timing
from benchmarks.baseline import BaselineTokenizer
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

OURS = ("bert_tf", "bert_tf with spans")
# These methods process only a sample of the lines.
SLOW_METHODS, SLOW_LINES = ("bert_tf's reference", "original"), 4000
METHODS = (*OURS, "tokenizers", *SLOW_METHODS)


def read_books(folder: Path) -> list[str]:
    """Returns the non-blank lines of all books."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    return [line for text in texts for line in text.split("\n") if line.strip()]


def sample_multilingual_lines(vocab: dict[str, int], seed: int) -> list[str]:
    """Returns lines of 12 random words of the vocabulary, sampled equally from all scripts."""
    by_script: dict[str, list[str]] = {}
    for token in vocab:
        if token.isalpha() and not token.startswith("##"):
            # The Unicode name of a letter begins with its script: LATIN, CYRILLIC, CJK, ...
            script = unicodedata.name(token[0], "").split(" ")[0]
            by_script.setdefault(script, []).append(token)
    scripts = [tokens for tokens in by_script.values() if len(tokens) >= 20]
    print(f"{len(scripts)} scripts")
    rng = random.Random(seed)
    return [" ".join(rng.choice(rng.choice(scripts)) for _ in range(12)) for _ in range(30_000)]


def make_encode(method: str, tokenizer: FullTokenizer, lines: list[str]) -> Callable[[], Any]:
    """Returns a function that converts the lines to ids with the given method."""
    lower = tokenizer.basic_tokenizer.do_lower_case
    if method in OURS:
        batch = BatchTokenizer(tokenizer)
        # Encode until the compiled tokenizer is built; the first texts use the reference.
        while batch.num_reference_texts == batch.num_texts:
            batch.encode(lines[:1000], with_spans=True)
        return functools.partial(batch.encode, lines, with_spans=method == "bert_tf with spans")
    if method == "tokenizers":
        rust = BertWordPieceTokenizer(dict(tokenizer.vocab), lowercase=lower, strip_accents=lower)
        encode = rust._tokenizer.encode_batch_fast
        # Batches of 1000 lines are faster than one batch.
        return lambda: [
            encoding.ids
            for first in range(0, len(lines), 1000)
            for encoding in encode(lines[first : first + 1000], add_special_tokens=False)
        ]
    if method == "original":
        baseline = BaselineTokenizer(tokenizer.vocab, lower)
        return lambda: [baseline.encode(line) for line in lines]
    return lambda: [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in lines]


def compare_methods(name: str, tokenizer: FullTokenizer, lines: list[str], rounds: int) -> dict:
    """Times all methods on the same lines, in MB of UTF-8 per second."""
    sample = random.Random(1).sample(lines, min(SLOW_LINES, len(lines)))
    inputs = {method: sample if method in SLOW_METHODS else lines for method in METHODS}
    expected = make_encode("bert_tf's reference", tokenizer, sample)()
    for method in OURS:
        encode = make_encode(method, tokenizer, sample)
        for ids in (encode(), encode()):
            is_equal = [ids[row].tolist() for row in range(len(sample))] == expected
            timing.require(is_equal, f"the ids of {method} differ from the reference's")
    is_equal = make_encode("original", tokenizer, sample)() == expected
    timing.require(is_equal, "the original algorithm's ids differ from the reference's")
    theirs = make_encode("tokenizers", tokenizer, sample)()
    differing = sum(a != b for a, b in zip(theirs, expected, strict=True))
    encode = make_encode("bert_tf", tokenizer, lines)
    before = encode.func.__self__.num_reference_texts
    encode()
    num_reference_texts = encode.func.__self__.num_reference_texts - before

    size = {name: sum(len(line.encode()) for line in lines) for name, lines in inputs.items()}
    makers = {m: functools.partial(make_encode, m, tokenizer, lines) for m, lines in inputs.items()}
    seconds = timing.time_in_processes(makers, rounds)
    per_byte = {name: [s / size[name] for s in times] for name, times in seconds.items()}
    results = {
        "MB": round(size["bert_tf"] / 1e6, 2),
        "vocabulary": max(tokenizer.vocab.values()) + 1,
        "fraction tokenized by the reference": num_reference_texts / len(lines),
        "fraction of lines on which tokenizers differs": differing / len(sample),
        "MB/s": {key: round(1e-6 / statistics.median(s), 2) for key, s in per_byte.items()},
        "times faster than": {
            key: round(timing.median_ratio(per_byte[key], per_byte["bert_tf"]), 1)
            for key in METHODS[1:]
        },
    }
    print(name, results, flush=True)
    return results


def main() -> None:
    """Compares and times all methods on all texts; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_dir", type=Path, required=True)
    parser.add_argument("--books", type=Path, help="folder of *.txt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    timing.use_one_core()
    results = {}
    if args.books:
        english = FullTokenizer(str(args.vocab_dir / "uncased_en_vocab.txt"))
        results["English books"] = compare_methods(
            "books", english, read_books(args.books), args.rounds
        )
    cased = FullTokenizer(str(args.vocab_dir / "multi_cased_vocab.txt"), do_lower_case=False)
    lines = sample_multilingual_lines(cased.vocab, args.seed)
    results["many scripts"] = compare_methods("scripts", cased, lines, args.rounds)
    lowered = FullTokenizer(str(args.vocab_dir / "multi_cased_vocab.txt"))
    results["many scripts, lower-cased"] = compare_methods("lowered", lowered, lines, args.rounds)
    timing.write_results(
        "tokenizer", results, "tensorflow", "tensorflow-text", "numpy", "tokenizers"
    )


if __name__ == "__main__":
    main()
