"""Compares bert_tf's accuracy after fine-tuning on SQuAD with Hugging Face's BERT on PyTorch.

usage: python benchmarks/squad_peer.py --model_dir=DIR --train_file=FILE --predict_file=FILE \
         --work_dir=DIR [--epochs=2] [--max_seq_length=192] [--doc_stride=96]

`run_squad.py` trains and evaluates our model. The peer, Hugging Face's model, starts from the same
checkpoint and trains on the same rows (`train.tf_record`, in a different random order) with the
same optimizer, written in PyTorch. bert_tf decodes and scores the peer's logits for
`eval.tf_record`, so that only model and training differ. torchmetrics also scores the
`predictions.json` of both models. The peer is not trained again if its logits exist. Needs torch,
torchmetrics and transformers.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing
from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.data.records import count_records, read_chunks
from bert_tf.options import SquadOptions
from bert_tf.tasks.question_answering.task import QuestionAnswering
from bert_tf.tokenization import FullTokenizer

ROOT = Path(__file__).resolve().parents[1]
BATCH_SIZE, LEARNING_RATE = 12, 3e-5


def read_rows(path: Path, task: QuestionAnswering, split: str) -> dict[str, np.ndarray]:
    """Reads all rows of a record file."""
    (rows,) = read_chunks(str(path), task.features(split), 1 << 20, count_records(str(path)))
    return dict(rows)


def keep_first_answers(train_file: Path, target: Path) -> None:
    """Writes a copy with only the first answer of each question, as training requires."""
    contents = json.loads(train_file.read_text(encoding="utf-8"))
    for entry in contents["data"]:
        for paragraph in entry["paragraphs"]:
            for question in paragraph["qas"]:
                del question["answers"][1:]
    target.write_text(json.dumps(contents), encoding="utf-8")


def run_peer(*arguments: object) -> str:
    """Runs squad_torch.py and returns its output."""
    command = [sys.executable, ROOT / "benchmarks" / "squad_torch.py", *arguments]
    return subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE).stdout.decode()


def main() -> None:
    """Trains and evaluates both models; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model_dir", "train_file", "predict_file", "work_dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--max_seq_length", type=int, default=192)
    parser.add_argument("--doc_stride", type=int, default=96)
    args = parser.parse_args()
    our_dir, peer_dir = args.work_dir / "bert_tf", args.work_dir / "peer"
    peer_dir.mkdir(parents=True, exist_ok=True)
    train_file = args.work_dir / "train.json"
    keep_first_answers(args.train_file, train_file)
    checkpoint = str(args.model_dir / "bert_model.ckpt")
    flags = {
        "bert_config_file": str(args.model_dir / "bert_config.json"),
        "vocab_file": str(args.model_dir / "vocab.txt"),
        "init_checkpoint": checkpoint,
        "train_file": str(train_file),
        "predict_file": str(args.predict_file),
        "output_dir": str(our_dir),
        "max_seq_length": args.max_seq_length,
        "doc_stride": args.doc_stride,
        "train_batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "num_train_epochs": args.epochs,
        "predict_batch_size": 32,
    }
    command = [sys.executable, str(ROOT / "run_squad.py"), "--do_train", "--do_eval"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run(command, check=True)

    tokenizer = FullTokenizer(flags["vocab_file"])
    config = BertConfig(len(tokenizer.vocab))
    task = QuestionAnswering(SquadOptions(**flags), config, tokenizer)
    windows = task.read("eval")
    metrics = json.loads((our_dir / "eval_results.json").read_text())
    weights = dict(checkpoints.read(checkpoint, checkpoints.shapes(checkpoint)))
    np.savez(peer_dir / "weights.npz", **weights)
    np.savez(peer_dir / "train.npz", **read_rows(our_dir / "train.tf_record", task, "train"))
    np.savez(peer_dir / "eval.npz", **read_rows(our_dir / "eval.tf_record", task, "eval"))
    shutil.copy(args.model_dir / "bert_config.json", peer_dir / "config.json")
    if not (peer_dir / "logits.npz").exists():
        run_peer("train", peer_dir, metrics["global_step"])
    logits = np.load(peer_dir / "logits.npz")
    top_spans = task.fetch({f"{name}_logits": logits[name] for name in ("start", "end")}, {})
    predictions = task.decode(
        windows, {name: np.asarray(value) for name, value in top_spans.items()}
    )
    task.write("eval", windows, predictions, str(peer_dir))
    results = {
        "flags": {k: v for k, v in flags.items() if not k.endswith(("file", "dir", "checkpoint"))},
        "bert_tf": {key: metrics[key] for key in ("exact_match", "f1")},
        "peer": task.metrics(windows, predictions),
    }
    for folder in (our_dir, peer_dir):
        scores = run_peer("score", args.predict_file, folder / "predictions.json")
        results[f"{folder.name}, scored by torchmetrics"] = json.loads(scores.splitlines()[-1])
    print(json.dumps(results, indent=1))
    timing.write_results(
        "squad_peer", results, "tensorflow", "torch", "transformers", "torchmetrics"
    )


if __name__ == "__main__":
    main()
