"""Makes the small BERT beside this file from books, with the scripts of this package.

usage: python examples/small_bert/make.py --books=DIR [--output_dir=examples/small_bert]
         [--work_dir=output/small_bert] [--held_out=pg11.txt] [--steps=6000]

DIR has plain texts, without the header and the licence of Project Gutenberg, and with a blank line
between paragraphs. All of its *.txt are used; the one called --held_out is not trained on. Every
command is printed before it runs. What they make stays in --work_dir, which must be empty; only in
the end --output_dir gets the vocabulary, the weights, and eval_results.json, which says what they
know of the held-out book.
"""

import argparse
import collections
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

# Most of the training is on short rows, where a small model soon learns to look at neighbours; the
# rest teaches the positions behind them (appendix A.2 of the paper does it with 128 and 512).
SHORT = {"max_seq_length": 32, "max_predictions_per_seq": 5}
LONG = {"max_seq_length": 128, "max_predictions_per_seq": 20}


def documents(text: str, paragraphs: int = 1) -> list[str]:
    """Cuts a book into documents, with a sentence on each line.

    A paragraph ends at a blank line. A sentence ends after `.`, `!` or `?`, with the quotation
    marks that follow, before white space: a plain rule, which takes `Mr.` for an end.

    Args:
        text: of the book.
        paragraphs: of a document.
    """
    found = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        sentences = re.sub(r"([.!?][\"”’')]*) ", r"\1\n", " ".join(paragraph.split()))
        if sentences:
            found.append(sentences)
    return ["\n".join(found[n : n + paragraphs]) for n in range(0, len(found), paragraphs)]


def count_records(path: str) -> int:
    """How many records a file has."""
    from bert_tf.data import records

    return records.count_records(path)


def commonest_share(path: Path) -> float:
    """Part of the masked pieces that are the commonest of them: what guessing it always gives."""
    import tensorflow as tf

    counts: collections.Counter[int] = collections.Counter()
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        entries = tf.train.Example.FromString(record).features.feature
        weights = entries["masked_lm_weights"].float_list.value
        ids = entries["masked_lm_ids"].int64_list.value
        counts.update(index for index, weight in zip(ids, weights, strict=True) if weight)
    return counts.most_common(1)[0][1] / counts.total()


def run(script: str, **flags: object) -> None:
    """Prints a command and runs it."""
    command = [script, *(f"--{name}={value}" for name, value in flags.items())]
    print("\n$ python", shlex.join(command), flush=True)
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


def train(work: Path, name: str, steps: int, **flags: object) -> None:
    """Trains on the records of a name, into a folder of this name."""
    run(
        "run_pretraining.py",
        do_train="true",
        input_file=work / f"{name}.tfrecord",
        output_dir=work / name,
        learning_rate=2e-3,
        num_train_steps=steps,
        num_warmup_steps=steps // 20,
        adam_bias_correction="true",
        **flags,
    )


def keep_weights(trained: str, path: Path) -> None:
    """Writes the weights of a training without what Adam keeps."""
    from bert_tf import checkpoints
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertPretrainer

    model = BertPretrainer(BertConfig.from_json_file(str(HERE / "bert_config.json")))
    checkpoints.restore(model, trained)
    variables = checkpoints.named_variables(model)
    values = {name: variable.value for name, variable in variables.items()}
    checkpoints.write(str(path), values)


def main() -> None:
    """From books to weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--held_out", default="pg11.txt", help="not trained on")
    parser.add_argument("--work_dir", type=Path, default=ROOT / "output" / "small_bert")
    parser.add_argument("--output_dir", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args()
    work = args.work_dir.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()):
        sys.exit(f"{work} is not empty, and old records must not get in: remove it")
    books = sorted(args.books.glob("*.txt"))
    if args.held_out not in [path.name for path in books] or len(books) < 2:
        sys.exit(f"{args.books} needs {args.held_out}, or another --held_out, and more books")
    vocab = work / "vocab.txt"
    for path in books:
        folder = work / ("held_out" if path.name == args.held_out else "train")
        folder.mkdir(exist_ok=True)
        # Documents longer than an example, so that there are next sentences.
        text = "\n\n".join(documents(path.read_text(encoding="utf-8"), paragraphs=20))
        (folder / path.name).write_text(text + "\n", encoding="utf-8")

    run("create_vocab.py", input_file=work / "train", output_file=vocab, vocab_size=8000)
    for name, text, sizes, dupe_factor in (
        ("short", "train", SHORT, 8),
        ("long", "train", LONG, 4),
        ("held_out", "held_out", LONG, 1),
    ):
        run(
            "create_pretraining_data.py",
            input_file=work / text,
            output_file=work / f"{name}.tfrecord",
            vocab_file=vocab,
            dupe_factor=dupe_factor,
            num_workers=2,
            **sizes,
        )
    config = HERE / "bert_config.json"
    train(work, "short", args.steps, bert_config_file=config, train_batch_size=128, **SHORT)
    begin = work / "short" / f"model.ckpt-{args.steps}"
    steps = args.steps // 4
    train(work, "long", steps, bert_config_file=config, init_checkpoint=begin, **LONG)
    run(
        "run_pretraining.py",
        do_eval="true",
        input_file=work / "held_out.tfrecord",
        output_dir=work / "long",
        bert_config_file=config,
        # All of the book, once.
        eval_batch_size=1,
        max_eval_steps=count_records(str(work / "held_out.tfrecord")),
        **LONG,
    )
    results = json.loads((work / "long" / "eval_results.json").read_text())
    results["commonest_piece"] = commonest_share(work / "held_out.tfrecord")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    keep_weights(
        str(work / "long" / f"model.ckpt-{steps}"), args.output_dir.resolve() / "bert_model.ckpt"
    )
    shutil.copy(vocab, args.output_dir)
    (args.output_dir / "eval_results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
