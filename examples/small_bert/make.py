"""Makes the small BERT beside this file from books, with the scripts of this package.

usage: python examples/small_bert/make.py --books=DIR [--work_dir=output/small_bert]

DIR has plain texts (*.txt) with a blank line between paragraphs; the one called --held_out is not
trained on. Every command is printed before it runs. In the end the folder of this file has the
vocabulary and the weights, and eval_results.json says what they know of the held-out book.
"""

import argparse
import collections
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

DATA = {"max_seq_length": 128, "max_predictions_per_seq": 20}


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


def keep_weights(trained: str) -> None:
    """Writes the weights of a training beside this file, without what Adam keeps."""
    from bert_tf import checkpoint
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertPretrainer

    model = BertPretrainer(BertConfig.from_json_file(str(HERE / "bert_config.json")))
    checkpoint.restore(model, trained)
    variables = checkpoint.named_variables(model)
    values = {name: variable.value for name, variable in variables.items()}
    checkpoint.write(str(HERE / "bert_model.ckpt"), values)


def main() -> None:
    """From books to weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--held_out", default="pg11.txt", help="not trained on")
    parser.add_argument("--work_dir", type=Path, default=ROOT / "output" / "small_bert")
    parser.add_argument("--steps", type=int, default=6000)
    args = parser.parse_args()
    work = args.work_dir.resolve()
    work.mkdir(parents=True, exist_ok=True)
    vocab = HERE / "vocab.txt"
    for path in sorted(args.books.glob("*.txt")):
        folder = work / ("held_out" if path.name == args.held_out else "train")
        folder.mkdir(exist_ok=True)
        # Documents longer than an example, so that there are next sentences.
        text = "\n\n".join(documents(path.read_text(encoding="utf-8"), paragraphs=20))
        (folder / path.name).write_text(text + "\n", encoding="utf-8")

    run("create_vocab.py", input_file=work / "train", output_file=vocab, vocab_size=8000)
    for name, dupe_factor in (("train", 20), ("held_out", 1)):
        run(
            "create_pretraining_data.py",
            input_file=work / name,
            output_file=work / f"{name}.tfrecord",
            vocab_file=vocab,
            dupe_factor=dupe_factor,
            num_workers=2,
            **DATA,
        )
    training = {"bert_config_file": HERE / "bert_config.json", "output_dir": work / "model", **DATA}
    run(
        "run_pretraining.py",
        do_train="true",
        input_file=work / "train.tfrecord",
        train_batch_size=32,
        learning_rate=2e-3,
        num_train_steps=args.steps,
        num_warmup_steps=args.steps // 20,
        adam_bias_correction="true",
        **training,
    )
    run(
        "run_pretraining.py",
        do_eval="true",
        input_file=work / "held_out.tfrecord",
        max_eval_steps=50,
        **training,
    )
    keep_weights(str(work / "model" / f"model.ckpt-{args.steps}"))
    lines = (work / "model" / "eval_results.txt").read_text().splitlines()
    results = dict(line.split(" = ") for line in lines)
    results["commonest_piece"] = str(commonest_share(work / "held_out.tfrecord"))
    (HERE / "eval_results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
