"""A fine-tuning on questions, beside the same one by Hugging Face's BERT on PyTorch.

usage: python benchmarks/squad_peer.py --model_dir=DIR --train_file=FILE --predict_file=FILE \
         --work_dir=DIR [--epochs=2] [--max_seq_length=192] [--doc_stride=96]

Needs torch, torchmetrics and transformers. `run_squad.py` trains and answers. The peer starts from
the same checkpoint, trains on the same rows (`train.tf_record`, shuffled by its own generator) with
the same optimizer written in PyTorch, and its logits for the rows of `eval.tf_record` are decoded
and scored by the same code, so that only model and training are compared. `predictions.json` of
both is then scored again by torchmetrics. Where the peer's logits are there already it goes on from
them.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf

from benchmarks import timing
from bert_tf import checkpoint
from bert_tf.config import BertConfig
from bert_tf.data.records import parse
from bert_tf.options import SquadOptions
from bert_tf.tasks.question_answering.task import Squad, best_places
from bert_tf.tokenization import FullTokenizer

ROOT = Path(__file__).resolve().parents[1]
BATCH, RATE = 12, 3e-5


def read(path: Path, task: Squad, split: str) -> dict[str, np.ndarray]:
    """All rows of a record file."""
    records = tf.data.TFRecordDataset(str(path)).batch(1 << 20)
    (batch,) = records.map(parse(task.features(split)))
    return {name: value.numpy() for name, value in batch.items()}


def with_one_answer(train_file: Path, target: Path) -> None:
    """A copy in which each question has its first answer only, as training needs it."""
    contents = json.loads(train_file.read_text(encoding="utf-8"))
    for entry in contents["data"]:
        for paragraph in entry["paragraphs"]:
            for question in paragraph["qas"]:
                del question["answers"][1:]
    target.write_text(json.dumps(contents), encoding="utf-8")


def by_the_peer(*arguments: object) -> str:
    """Runs squad_torch.py; returns what it printed."""
    command = [sys.executable, ROOT / "benchmarks" / "squad_torch.py", *arguments]
    return subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE).stdout.decode()


def main() -> None:
    """Trains both, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model_dir", "train_file", "predict_file", "work_dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--max_seq_length", type=int, default=192)
    parser.add_argument("--doc_stride", type=int, default=96)
    args = parser.parse_args()
    ours, theirs = args.work_dir / "bert_tf", args.work_dir / "peer"
    theirs.mkdir(parents=True, exist_ok=True)
    train_file = args.work_dir / "train.json"
    with_one_answer(args.train_file, train_file)
    prefix = str(args.model_dir / "bert_model.ckpt")
    flags = {
        "bert_config_file": str(args.model_dir / "bert_config.json"),
        "vocab_file": str(args.model_dir / "vocab.txt"),
        "init_checkpoint": prefix,
        "train_file": str(train_file),
        "predict_file": str(args.predict_file),
        "output_dir": str(ours),
        "max_seq_length": args.max_seq_length,
        "doc_stride": args.doc_stride,
        "train_batch_size": BATCH,
        "learning_rate": RATE,
        "num_train_epochs": args.epochs,
        "predict_batch_size": 32,
    }
    command = [sys.executable, str(ROOT / "run_squad.py"), "--do_train", "--do_eval"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run(command, check=True)

    tokenizer = FullTokenizer(flags["vocab_file"])
    task = Squad(SquadOptions(**flags), BertConfig(len(tokenizer.vocab)), tokenizer)
    questions = task.read_examples("predict")
    figures = json.loads((ours / "eval_results.json").read_text())
    weights = dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))
    np.savez(theirs / "weights.npz", **weights)
    np.savez(theirs / "train.npz", **read(ours / "train.tf_record", task, "train"))
    np.savez(theirs / "eval.npz", **read(ours / "eval.tf_record", task, "predict"))
    shutil.copy(args.model_dir / "bert_config.json", theirs / "config.json")
    if not (theirs / "logits.npz").exists():
        by_the_peer("train", theirs, figures["global_step"])
    logits = np.load(theirs / "logits.npz")
    best: dict[str, np.ndarray] = {}
    for name in ("start", "end"):
        places = best_places(logits[name], name, task.options.n_best_size, args.max_seq_length)
        best |= {key: np.asarray(value) for key, value in places.items()}
    predictions = task.decode(questions, best)
    task.write_predictions(questions, predictions, str(theirs))
    results = {
        "flags": {k: v for k, v in flags.items() if not k.endswith(("file", "dir", "checkpoint"))},
        "bert_tf": {key: figures[key] for key in ("exact_match", "f1")},
        "peer": task.metrics(questions, predictions),
    }
    for folder in (ours, theirs):
        scores = by_the_peer("score", args.predict_file, folder / "predictions.json")
        results[f"{folder.name}, scored by torchmetrics"] = json.loads(scores.splitlines()[-1])
    print(json.dumps(results, indent=1))
    timing.write_results(
        "squad_peer", results, "tensorflow", "torch", "transformers", "torchmetrics"
    )


if __name__ == "__main__":
    main()
