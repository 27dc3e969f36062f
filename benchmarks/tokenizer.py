"""Times tokenization on one core, in MB/s, beside `tokenizers` and the original's method.

usage: python benchmarks/tokenizer.py --vocab_dir=DIR [--books=DIR] [--rounds=5]

Texts are English books (*.txt in --books) with uncased_en_vocab.txt, and text of many scripts in
equal parts, drawn with --seed from the words of multi_cased_vocab.txt, cased and lower-cased (which
strips accents). The ids of all methods are compared first; lines on which `tokenizers` differs from
the original are counted, and not omitted. Each method has a process of its own; they take turns.
Needs the extra `benchmark`.
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
from benchmarks.plain import PlainTokenizer
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

OURS = ("bert_tf", "bert_tf with spans")
# These process a part of the lines.
SLOW_METHODS, SLOW_LINES = ("bert_tf's reference", "the original's way"), 4000
METHODS = (*OURS, "tokenizers", *SLOW_METHODS)


def books(folder: Path) -> list[str]:
    """Returns all lines that are not blank."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    return [line for text in texts for line in text.split("\n") if line.strip()]


def scripts(vocab: dict[str, int], seed: int) -> list[str]:
    """Returns lines of 12 words of a multilingual vocabulary, with all scripts equally frequent."""
    by_script: dict[str, list[str]] = {}
    for token in vocab:
        if token.isalpha() and not token.startswith("##"):
            # LATIN, CYRILLIC, CJK, ...: the name of a letter begins with its script.
            script = unicodedata.name(token[0], "").split(" ")[0]
            by_script.setdefault(script, []).append(token)
    words = [of_script for of_script in by_script.values() if len(of_script) >= 20]
    print(f"{len(words)} scripts")
    draw = random.Random(seed)
    return [" ".join(draw.choice(draw.choice(words)) for _ in range(12)) for _ in range(30_000)]


def work(way: str, tokenizer: FullTokenizer, lines: list[str]) -> Callable[[], Any]:
    """Returns a function that converts lines to ids by one of the methods."""
    lower = tokenizer.basic_tokenizer.do_lower_case
    if way in OURS:
        batch = BatchTokenizer(tokenizer)
        # The first texts go to the reference, until building the compiled tokenizer pays off.
        while batch.num_reference_texts == batch.num_texts:
            batch.encode(lines[:1000], with_spans=True)
        return functools.partial(batch.encode, lines, with_spans=way == "bert_tf with spans")
    if way == "tokenizers":
        rust = BertWordPieceTokenizer(dict(tokenizer.vocab), lowercase=lower, strip_accents=lower)
        encode = rust._tokenizer.encode_batch_fast
        # A single batch would be slower.
        return lambda: [
            encoding.ids
            for first in range(0, len(lines), 1000)
            for encoding in encode(lines[first : first + 1000], add_special_tokens=False)
        ]
    if way == "the original's way":
        plain = PlainTokenizer(tokenizer.vocab, lower)
        return lambda: [plain.encode(line) for line in lines]
    return lambda: [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in lines]


def compare(name: str, tokenizer: FullTokenizer, lines: list[str], rounds: int) -> dict:
    """Times all methods on the same lines, in MB of UTF-8 per second."""
    part = random.Random(1).sample(lines, min(SLOW_LINES, len(lines)))
    used = {way: part if way in SLOW_METHODS else lines for way in METHODS}
    expected = work("bert_tf's reference", tokenizer, part)()
    for way in OURS:
        encode = work(way, tokenizer, part)
        for ids in (encode(), encode()):
            same = [ids[row].tolist() for row in range(len(part))] == expected
            timing.require(same, f"{way} does not give the reference's ids")
    same = work("the original's way", tokenizer, part)() == expected
    timing.require(same, "the original's way does not give the reference's ids")
    theirs = work("tokenizers", tokenizer, part)()
    differing = sum(a != b for a, b in zip(theirs, expected, strict=True))
    encode = work("bert_tf", tokenizer, lines)
    before = encode.func.__self__.num_reference_texts
    encode()
    num_reference_texts = encode.func.__self__.num_reference_texts - before

    size = {way: sum(len(line.encode()) for line in lines) for way, lines in used.items()}
    makers = {way: functools.partial(work, way, tokenizer, lines) for way, lines in used.items()}
    seconds = timing.interleaved_processes(makers, rounds)
    per_byte = {way: [s / size[way] for s in times] for way, times in seconds.items()}
    results = {
        "MB": round(size["bert_tf"] / 1e6, 2),
        "vocabulary": max(tokenizer.vocab.values()) + 1,
        "handed to the reference": num_reference_texts / len(lines),
        "lines on which tokenizers differs": differing / len(part),
        "MB/s": {key: round(1e-6 / statistics.median(s), 2) for key, s in per_byte.items()},
        "times faster than": {
            key: round(timing.ratio(per_byte[key], per_byte["bert_tf"]), 1) for key in METHODS[1:]
        },
    }
    print(name, results, flush=True)
    return results


def main() -> None:
    """Compares and times all methods on all texts, prints and writes the results."""
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
        results["English books"] = compare("books", english, books(args.books), args.rounds)
    many = FullTokenizer(str(args.vocab_dir / "multi_cased_vocab.txt"), do_lower_case=False)
    lines = scripts(many.vocab, args.seed)
    results["many scripts"] = compare("scripts", many, lines, args.rounds)
    lowered = FullTokenizer(str(args.vocab_dir / "multi_cased_vocab.txt"))
    results["many scripts, lower-cased"] = compare("lowered", lowered, lines, args.rounds)
    timing.write_results(
        "tokenizer", results, "tensorflow", "tensorflow-text", "numpy", "tokenizers"
    )


if __name__ == "__main__":
    main()
