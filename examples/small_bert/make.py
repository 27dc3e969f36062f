"""Pre-trains the small BERT in this folder on books, with the package's scripts.

usage: python examples/small_bert/make.py --books=DIR [--output_dir=examples/small_bert]
         [--work_dir=output/small_bert] [--held_out=pg11.txt] [--steps=6000]

DIR contains plain-text books (*.txt), without Project Gutenberg's header and license, and with a
blank line between paragraphs. The --held_out book is used for evaluation only. Each command is
printed before it runs. --work_dir, which must be empty, receives all intermediate files; in the
end, the vocabulary, the weights and eval_results.json (metrics on the held-out book) are written to
--output_dir.
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

# Most steps use short sequences, from which a small model quickly learns local context; the rest
# train the remaining position embeddings (the paper uses lengths 128 and 512, appendix A.2).
SHORT = {"max_seq_length": 32, "max_predictions_per_seq": 5}
LONG = {"max_seq_length": 128, "max_predictions_per_seq": 20}


def split_into_documents(text: str, paragraphs: int = 1) -> list[str]:
    """Splits a book into documents with one sentence per line.

    Blank lines separate paragraphs. A sentence ends at `.`, `!` or `?` and any closing quotation
    marks, followed by a space. This simple rule also splits after abbreviations such as `Mr.`

    Args:
        text: text of the book.
        paragraphs: number of paragraphs per document.
    """
    blocks = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        sentences = re.sub(r"([.!?][\"”’')]*) ", r"\1\n", " ".join(paragraph.split()))
        if sentences:
            blocks.append(sentences)
    return [
        "\n".join(blocks[first : first + paragraphs]) for first in range(0, len(blocks), paragraphs)
    ]


def count_records(path: str) -> int:
    """Returns the number of records in a file."""
    from bert_tf.data import records

    return records.count_records(path)


def majority_accuracy(path: Path) -> float:
    """Returns the accuracy of always predicting the most frequent masked word piece."""
    import tensorflow as tf

    counts: collections.Counter[int] = collections.Counter()
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        weights = features["masked_lm_weights"].float_list.value
        ids = features["masked_lm_ids"].int64_list.value
        counts.update(token_id for token_id, weight in zip(ids, weights, strict=True) if weight)
    return counts.most_common(1)[0][1] / counts.total()


def run(script: str, **flags: object) -> None:
    """Prints and runs a script with flags."""
    command = [script, *(f"--{name}={value}" for name, value in flags.items())]
    print("\n$ python", shlex.join(command), flush=True)
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


def train(work: Path, name: str, steps: int, **flags: object) -> None:
    """Trains on `<name>.tfrecord` and writes checkpoints to the folder `<name>`."""
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


def save_weights(source: str, target: Path) -> None:
    """Copies a checkpoint without the optimizer's variables."""
    from bert_tf import checkpoint, checkpoints
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertPretrainer

    model = BertPretrainer(BertConfig.from_json_file(str(HERE / "bert_config.json")))
    checkpoint.restore(model, source)
    variables = checkpoints.named_variables(model)
    values = {name: variable.value for name, variable in variables.items()}
    checkpoint.write(str(target), values)


def main() -> None:
    """Creates the vocabulary and the records, trains, and evaluates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--held_out", default="pg11.txt", help="book for evaluation")
    parser.add_argument("--work_dir", type=Path, default=ROOT / "output" / "small_bert")
    parser.add_argument("--output_dir", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args()
    work = args.work_dir.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()):
        sys.exit(f"--work_dir={work} must be empty: remove its files")
    books = sorted(args.books.glob("*.txt"))
    if args.held_out not in [path.name for path in books] or len(books) < 2:
        sys.exit(f"{args.books} must contain {args.held_out} (--held_out) and other books")
    vocab = work / "vocab.txt"
    for path in books:
        folder = work / ("held_out" if path.name == args.held_out else "train")
        folder.mkdir(exist_ok=True)
        # Documents must be longer than an example, to provide next sentences.
        text = "\n\n".join(split_into_documents(path.read_text(encoding="utf-8"), paragraphs=20))
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
    init_checkpoint = work / "short" / f"model.ckpt-{args.steps}"
    steps = args.steps // 4
    train(work, "long", steps, bert_config_file=config, init_checkpoint=init_checkpoint, **LONG)
    run(
        "run_pretraining.py",
        do_eval="true",
        input_file=work / "held_out.tfrecord",
        output_dir=work / "long",
        bert_config_file=config,
        # Evaluate on every record exactly once.
        eval_batch_size=1,
        max_eval_steps=count_records(str(work / "held_out.tfrecord")),
        **LONG,
    )
    results = json.loads((work / "long" / "eval_results.json").read_text())
    results["commonest_piece"] = majority_accuracy(work / "held_out.tfrecord")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    save_weights(
        str(work / "long" / f"model.ckpt-{steps}"), args.output_dir.resolve() / "bert_model.ckpt"
    )
    shutil.copy(vocab, args.output_dir)
    (args.output_dir / "eval_results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
