"""A fine-tuning on questions, beside the same one by Hugging Face's BERT on PyTorch.

usage: python benchmarks/squad_peer.py --model_dir=DIR --train_file=FILE --predict_file=FILE \
         --work_dir=DIR [--epochs=2] [--max_seq_length=192] [--doc_stride=96]

Needs torch and transformers. `run_squad.py` trains and answers. The peer starts from the same
checkpoint, trains on the same rows (`train.tf_record`, shuffled by its own generator) with
PyTorch's AdamW, and its logits for the rows of `eval.tf_record` are decoded and scored by the same
code, so that only model and training are compared. `predictions.json` of both is then scored again
by the metric of transformers.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf
import torch
import transformers

from benchmarks import timing
from bert_tf import checkpoint
from bert_tf.config import BertConfig
from bert_tf.data.records import parse
from bert_tf.options import SquadOptions
from bert_tf.tasks.squad import Squad, best_places
from bert_tf.tokenization import FullTokenizer

ROOT = Path(__file__).resolve().parents[1]
BATCH, RATE, WARM_UP = 12, 3e-5, 0.1


def read(path: Path, task: Squad, split: str) -> dict[str, np.ndarray]:
    """All rows of a record file."""
    records = tf.data.TFRecordDataset(str(path)).batch(1 << 20)
    (batch,) = records.map(parse(task.features(split)))
    return {name: value.numpy() for name, value in batch.items()}


def peer_of(model_dir: Path) -> Any:
    """The peer, with the weights of an original checkpoint."""
    settings = json.loads((model_dir / "bert_config.json").read_text())
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**settings))
    prefix = str(model_dir / "bert_model.ckpt")
    values = dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))
    state = model.state_dict()
    for name, target in state.items():
        if not name.startswith("bert.") or name.endswith("position_ids"):
            continue
        theirs = name.replace(".layer.", ".layer_").replace(".", "/")
        theirs = theirs.replace("LayerNorm/weight", "LayerNorm/gamma")
        theirs = theirs.replace("LayerNorm/bias", "LayerNorm/beta")
        theirs = theirs.replace("_embeddings/weight", "_embeddings")
        kernel = theirs.endswith("/weight")
        value = values[theirs.replace("/weight", "/kernel")]
        target.copy_(torch.tensor(value.T if kernel else value))
    model.load_state_dict(state)
    return model


def inputs(rows: dict[str, np.ndarray], numbers: np.ndarray) -> dict[str, torch.Tensor]:
    """What the peer takes."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    found = {peer: torch.tensor(rows[ours][numbers]).long() for peer, ours in names.items()}
    if "start_positions" in rows:
        found["start_positions"] = torch.tensor(rows["start_positions"][numbers]).long()
        found["end_positions"] = torch.tensor(rows["end_positions"][numbers]).long()
    return found


def train(model: Any, rows: dict[str, np.ndarray], num_train_steps: int) -> None:
    """Trains the peer as the original would, with PyTorch's optimizer."""
    plain = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(num_train_steps * WARM_UP), num_train_steps
    )
    random = np.random.default_rng(12345)
    count = len(rows["input_ids"])
    order = np.concatenate([random.permutation(count) for _ in range(num_train_steps)][:64])
    model.train()
    for step in range(num_train_steps):
        numbers = order[step * BATCH : (step + 1) * BATCH]
        loss = model(**inputs(rows, numbers)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"peer: step {step} of {num_train_steps}, loss {loss.item():.3f}", flush=True)


def logits_of(model: Any, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Begin and end logits of all rows."""
    model.eval()
    found: list[list[np.ndarray]] = [[], []]
    with torch.no_grad():
        for first in range(0, len(rows["input_ids"]), 32):
            last = min(first + 32, len(rows["input_ids"]))
            out = model(**inputs(rows, np.arange(first, last)))
            found[0].append(out.start_logits.numpy())
            found[1].append(out.end_logits.numpy())
    return [np.concatenate(parts) for parts in found]


def with_one_answer(train_file: Path, target: Path) -> None:
    """A copy in which each question has its first answer only, as training needs it."""
    contents = json.loads(train_file.read_text(encoding="utf-8"))
    for entry in contents["data"]:
        for paragraph in entry["paragraphs"]:
            for question in paragraph["qas"]:
                del question["answers"][1:]
    target.write_text(json.dumps(contents), encoding="utf-8")


def independent_scores(predict_file: Path, predictions: Path) -> dict[str, float]:
    """Exact match and F1 by the metric of transformers."""
    from transformers.data.metrics import squad_metrics
    from transformers.data.processors.squad import SquadV1Processor

    examples = SquadV1Processor().get_dev_examples(str(predict_file.parent), predict_file.name)
    found = squad_metrics.squad_evaluate(examples, json.loads(predictions.read_text()))
    return {"exact_match": found["exact"], "f1": found["f1"]}


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
    flags = {
        "bert_config_file": str(args.model_dir / "bert_config.json"),
        "vocab_file": str(args.model_dir / "vocab.txt"),
        "init_checkpoint": str(args.model_dir / "bert_model.ckpt"),
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
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = {"bert_tf": time.perf_counter() - begin}

    tokenizer = FullTokenizer(flags["vocab_file"])
    task = Squad(SquadOptions(**flags), BertConfig(len(tokenizer.vocab)), tokenizer)
    questions = task.read_examples("predict")
    figures = json.loads((ours / "eval_results.json").read_text())
    begin = time.perf_counter()
    torch.manual_seed(12345)
    model = peer_of(args.model_dir)
    train(model, read(ours / "train.tf_record", task, "train"), figures["global_step"])
    start_logits, end_logits = logits_of(model, read(ours / "eval.tf_record", task, "predict"))
    seconds["peer"] = time.perf_counter() - begin
    best: dict[str, np.ndarray] = {}
    for name, logits in (("start", start_logits), ("end", end_logits)):
        places = best_places(logits, name, task.options.n_best_size, args.max_seq_length)
        best |= {key: np.asarray(value) for key, value in places.items()}
    predictions = task.decode(questions, best)
    task.write_predictions(questions, predictions, str(theirs))
    results = {
        "flags": {k: v for k, v in flags.items() if not k.endswith(("file", "dir", "checkpoint"))},
        "bert_tf": {key: figures[key] for key in ("exact_match", "f1")},
        "peer": task.metrics(questions, predictions),
        "scored by transformers": {
            folder.name: independent_scores(args.predict_file, folder / "predictions.json")
            for folder in (ours, theirs)
        },
        "seconds, training and answers": {name: round(s) for name, s in seconds.items()},
    }
    print(json.dumps(results, indent=1))
    timing.write_results("squad_peer", results, "tensorflow", "torch", "transformers")


if __name__ == "__main__":
    main()
