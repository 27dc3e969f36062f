"""How often predict_masked.py finds the word that was taken out of a text.

usage: python benchmarks/masked_words.py --text=FILE [--count=1000] [--seed=1] [--model_dir=DIR]

FILE is a plain text with a blank line between paragraphs. So many of its words, drawn from all of
them with the same chance, are replaced by [MASK], one in each copy of its paragraph; a word is a
run of letters. A candidate is right when it is the word as the tokenizer normalizes it (lower-case
for an uncased model). Without --whole_word a word of several pieces cannot be right. What is
compared with is to always guess the commonest piece, or the five commonest, of these words:
commonest by these very words, so no other constant guess does better. `model_dir` has
bert_model.ckpt, bert_config.json and vocab.txt; left out, it is examples/small_bert.
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
from bert_tf.options import MaskedWordsOptions
from bert_tf.quiet import import_tensorflow
from bert_tf.tasks.fill_mask.masked_texts import MASK
from bert_tf.tokenization import FullTokenizer

SMALL_BERT = Path(__file__).resolve().parents[1] / "examples" / "small_bert"
_WORD = re.compile(r"[^\W\d_]+")
_TOP = 5


def draw(text: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Paragraphs with a mask, and the words that it took the place of."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    words = [(part, found) for part in paragraphs for found in _WORD.finditer(part)]
    chosen = random.Random(seed).sample(words, count)
    return [(part[: m.start()] + MASK + part[m.end() :], m[0]) for part, m in chosen]


def shares(ranks: list[int | None]) -> dict[str, float]:
    """Parts of the words that were found first, and among the first."""
    found = [rank for rank in ranks if rank is not None]
    return {
        "top-1": sum(rank == 0 for rank in found) / len(ranks),
        f"top-{_TOP}": len(found) / len(ranks),
    }


def main() -> None:
    """Prints and writes the figures."""
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
        "top_k": _TOP,
    }
    import_tensorflow()
    from bert_tf.tasks.fill_mask.fill_mask import MaskedWords

    drawn = draw(args.text.read_text(encoding="utf-8"), args.count, args.seed)
    tokenizer = FullTokenizer(flags["vocab_file"])
    pieces = [tokenizer.tokenize(word) for _, word in drawn]
    words = ["".join(tokenizer.basic_tokenizer.tokenize(word)) for _, word in drawn]
    whole = [word for word, cut in zip(words, pieces, strict=True) if cut == [word]]
    commonest = [count for _, count in collections.Counter(whole).most_common(_TOP)]
    figures = {
        "words": len(words),
        "of one piece": len(whole) / len(words),
        "the commonest": {
            "top-1": commonest[0] / len(words),
            f"top-{_TOP}": sum(commonest) / len(words),
        },
    }
    for name, whole_word in (("pieces", False), ("--whole_word", True)):
        found = MaskedWords(MaskedWordsOptions(whole_word=whole_word, **flags)).fill(
            [text for text, _ in drawn]
        )
        ranks = []
        for word, (candidates,) in zip(words, found, strict=True):
            guesses = [candidate.word for candidate in candidates]
            ranks.append(guesses.index(word) if word in guesses else None)
        figures[name] = shares(ranks)
        several = [rank for rank, cut in zip(ranks, pieces, strict=True) if len(cut) > 1]
        figures[name][f"top-{_TOP} of those of several pieces"] = shares(several)[f"top-{_TOP}"]
    print(json.dumps(figures, indent=1))
    timing.write_results("masked_words", figures, "tensorflow", "numpy")


if __name__ == "__main__":
    main()
