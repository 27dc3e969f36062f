"""Measures the accuracy with which predict_masked.py predicts masked words.

usage: python benchmarks/masked_words.py --text=FILE [--count=1000] [--seed=1] [--model_dir=DIR]

FILE is a plain text with a blank line between paragraphs. --count words (sequences of letters) are
drawn uniformly, and each is replaced with [MASK] in a copy of its paragraph. A prediction is
correct if it equals the word after the tokenizer's normalization (lower case for uncased models).
Predictions are made with and without --whole_word; without it, they are single word pieces, so a
word of several pieces is never predicted. The baseline always predicts the most frequent word
pieces among the masked words, which no other constant prediction can beat. --model_dir contains
bert_model.ckpt, bert_config.json and vocab.txt; the default is examples/small_bert.
"""

import argparse
import collections
import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import timing
from bert_tf.base.quiet import import_tensorflow
from bert_tf.options import MaskedWordsOptions
from bert_tf.tasks.fill_mask.fill_mask import MASK
from bert_tf.tokenization import FullTokenizer

SMALL_BERT = Path(__file__).resolve().parents[1] / "examples" / "small_bert"
_WORD = re.compile(r"[^\W\d_]+")
_TOP_K = 5


def sample_words(text: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Returns pairs: a paragraph in which one word is masked, and that word."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    words = [(paragraph, match) for paragraph in paragraphs for match in _WORD.finditer(paragraph)]
    sample = random.Random(seed).sample(words, count)
    return [(text[: m.start()] + MASK + text[m.end() :], m[0]) for text, m in sample]


def accuracy(ranks: list[int | None]) -> dict[str, float]:
    """Computes top-1 and top-5 accuracy from the ranks of the words, None if not in the top 5."""
    return {
        "top-1": sum(rank == 0 for rank in ranks) / len(ranks),
        f"top-{_TOP_K}": sum(rank is not None for rank in ranks) / len(ranks),
    }


def main() -> None:
    """Predicts the masked words; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model_dir", type=Path, default=SMALL_BERT)
    args = parser.parse_args()
    flags = {
        "bert_config_file": str(args.model_dir / "bert_config.json"),
        "vocab_file": str(args.model_dir / "vocab.txt"),
        "init_checkpoint": str(args.model_dir / "bert_model.ckpt"),
        "top_k": _TOP_K,
    }
    import_tensorflow()
    from bert_tf.tasks.fill_mask.fill_mask import FillMask

    sample = sample_words(args.text.read_text(encoding="utf-8"), args.count, args.seed)
    tokenizer = FullTokenizer(flags["vocab_file"])
    pieces = [tokenizer.tokenize(word) for _, word in sample]
    words = ["".join(tokenizer.basic_tokenizer.tokenize(word)) for _, word in sample]
    single_piece_words = [
        word for word, tokens in zip(words, pieces, strict=True) if tokens == [word]
    ]
    top_counts = [count for _, count in collections.Counter(single_piece_words).most_common(_TOP_K)]
    results = {
        "words": len(words),
        "fraction of a single piece": len(single_piece_words) / len(words),
        "most frequent pieces": {
            "top-1": top_counts[0] / len(words),
            f"top-{_TOP_K}": sum(top_counts) / len(words),
        },
    }
    for name, whole_word in (("pieces", False), ("--whole_word", True)):
        model = FillMask(MaskedWordsOptions(whole_word=whole_word, **flags))
        predictions = model.fill([text for text, _ in sample])
        ranks = []
        for word, (candidates,) in zip(words, predictions, strict=True):
            guesses = [candidate.word for candidate in candidates]
            ranks.append(guesses.index(word) if word in guesses else None)
        results[name] = accuracy(ranks)
        multi_piece_ranks = [
            rank for rank, tokens in zip(ranks, pieces, strict=True) if len(tokens) > 1
        ]
        top_k_accuracy = accuracy(multi_piece_ranks)[f"top-{_TOP_K}"]
        results[name][f"top-{_TOP_K}, words of several pieces"] = top_k_accuracy
    print(json.dumps(results, indent=1))
    timing.write_results("masked_words", results, "tensorflow", "numpy")


if __name__ == "__main__":
    main()
