"""Compares encoders trained by bert_tf and by sentence-transformers, on the same rows.

usage: python benchmarks/embeddings_peer.py --name=NAME --model_dir=DIR --data_dir=DIR \
         --work_dir=DIR [--task_name=sts-b] [--loss=cosent] [--train_file=FILE] [--eval_file=FILE] \
         [--rows=N] [--seeds=3] [--max_seq_length=64] [--batch_size=32] [--learning_rate=2e-5] \
         [--batch_sampler=batch_sampler] [--same_optimizer] [--peer_python=python]

Both start from the checkpoint in --model_dir, and train one epoch with the same rows, loss, number
of steps, warm-up, learning rate and weight decay, on --seeds seeds. The order of the rows, dropout
masks and the optimizer differ: the original's AdamW does not correct its bias, and its learning
rate decays from the first step on, not from the end of the warm-up. --same_optimizer corrects the
bias, and scales our learning rate so that the decay is the same.
`extract_features.py` encodes the texts of the evaluation with our models, `encode` with theirs; the
metrics of both are computed by bert_tf. Models and vectors that exist in --work_dir are not made
again. --peer_python is a Python with torch, sentence-transformers, datasets and accelerate.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing
from bert_tf.checkpoints.formats.sentence_transformers import declaration
from bert_tf.data import array_ops
from bert_tf.data.matches import Matches, read_matches
from bert_tf.data.ranking_metrics import correlations, rank
from bert_tf.options import EmbeddingsOptions
from bert_tf.tasks.embeddings.task import Judged

ROOT = Path(__file__).resolve().parents[1]
LOSS_SCALE = 20.0


def write_lines(path: Path, rows: list[dict]) -> None:
    """Writes JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def run(python: str, script: str, *arguments: str, **flags: object) -> None:
    """Runs a script of this repository."""
    options = [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run([python, str(ROOT / script), *arguments, *options], check=True)


def prepare(args: argparse.Namespace) -> tuple[Matches, Judged]:
    """Writes the rows to train on, the texts to encode, and the model for sentence-transformers."""
    files = {"train_file": args.train_file, "eval_file": args.eval_file}
    options = EmbeddingsOptions(
        task_name=args.task_name, data_dir=str(args.data_dir), loss=args.loss, **files
    )
    train, dev = (read_matches(options, s, options.is_scored(s)) for s in ("train", "eval"))
    matches = train.matches
    if args.rows:
        chosen = np.random.default_rng(0).permutation(len(matches))[: args.rows]
        matches = [matches[index] for index in chosen]
    scored = options.is_scored("train")
    for name, rows in (("train", matches), ("dev", dev.matches)):
        lines = [
            {"a": m.anchor, "b": m.positive} | ({"s": m.score} if scored else {}) for m in rows
        ]
        write_lines(args.work_dir / f"{name}.jsonl", lines)
    judged = Judged(dev, "", "")
    write_lines(args.work_dir / "texts.jsonl", [{"text": item.text} for item in judged])
    folder = args.work_dir / "model"
    if not folder.exists():
        flags = {"input": args.model_dir, "output": folder, "to": "hugging_face", "head": "encoder"}
        run(sys.executable, "convert_checkpoint.py", **flags, do_lower_case="true")
        size = json.loads((folder / "config.json").read_text())["hidden_size"]
        for name, text in declaration("mean", False, args.max_seq_length, size, {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    return train._replace(matches=matches), judged


def train_ours(args: argparse.Namespace, steps: int) -> list[np.ndarray]:
    """Returns the vectors of the texts for each seed; before them, those without training."""
    folder, scored = args.work_dir / f"ours{'_same' * args.same_optimizer}", args.loss == "cosent"
    scale = steps / (steps - int(steps * 0.1)) if args.same_optimizer else 1
    settings = {
        **{"anchor_column": "a", "positive_column": "b", "data_dir": args.work_dir},
        **({"score_column": "s"} if scored else {}),
        **{"loss": args.loss, "loss_scale": LOSS_SCALE, "max_seq_length": args.max_seq_length},
        **{"train_batch_size": args.batch_size, "learning_rate": args.learning_rate * scale},
        **{"num_train_epochs": 1, "num_runs": args.seeds, "random_seed": 1},
        **{"init_checkpoint": args.model_dir, "output_dir": folder, "report": "false"},
        "adam_bias_correction": str(args.same_optimizer).lower(),
    }
    if not (folder / "runs.json").exists():
        flags = {"do_train": "true", "do_eval": "true"}
        run(sys.executable, "run_embeddings.py", **flags, **settings)
    models = [folder / f"run_{n + 1}" if args.seeds > 1 else folder for n in range(args.seeds)]
    vectors = []
    for model in [args.model_dir, *models]:
        name = model.name if model == args.model_dir else "_".join(model.parts[-2:])
        output = args.work_dir / f"vectors_{name}.npz"
        if not output.exists():
            extra = {} if model in models else {"pooling": "mean", "layers": -1}
            extra |= {} if model in models else {"max_seq_length": args.max_seq_length}
            flags = {"init_checkpoint": model, "input_file": args.work_dir / "texts.jsonl"}
            flags |= {"text_column": "text", "output_file": output, "output_format": "npz"}
            run(sys.executable, "extract_features.py", **flags, **extra)
        values = np.load(output)["features"]
        vectors.append(values.reshape(len(values), -1))
    return vectors


def write_settings(args: argparse.Namespace, steps: int, seed: int = 1) -> tuple[str, Path]:
    """Writes the settings for embeddings_torch.py; returns their path, and that of the vectors."""
    output = args.work_dir / f"theirs_{seed}_{args.batch_sampler}.npy"
    settings = {
        "model_dir": args.work_dir / "model",
        "train_file": args.work_dir / "train.jsonl",
        "texts_file": args.work_dir / "texts.jsonl",
        "vectors_file": output,
        **{"loss": args.loss, "loss_scale": LOSS_SCALE, "batch_size": args.batch_size},
        **{"learning_rate": args.learning_rate, "steps": steps},
        **{"warmup_steps": int(steps * 0.1), "seed": seed},
        "batch_sampler": args.batch_sampler,
    }
    path = args.work_dir / "settings.json"
    path.write_text(json.dumps(settings, default=str))
    return str(path), output


def train_theirs(args: argparse.Namespace, steps: int) -> list[np.ndarray]:
    """Returns the vectors of the texts for each seed."""
    vectors = []
    for seed in range(1, args.seeds + 1):
        path, output = write_settings(args, steps, seed)
        if not output.exists():
            run(args.peer_python, "benchmarks/embeddings_torch.py", path)
        vectors.append(np.load(output))
    return vectors


def metric(judged: Judged, vectors: np.ndarray, loss: str) -> float:
    """Returns Spearman's correlation, or MRR@10."""
    queries, passages = np.split(array_ops.normalize(vectors), [judged.num_queries])
    if loss == "cosent":
        left, right, scores = map(np.array, zip(*judged.judgments, strict=True))
        cosines = (queries[left] * passages[right]).sum(axis=1)
        return float(correlations(cosines, scores)["eval_spearman"])
    ranking = rank(queries, passages, judged.judgments, judged.ignored)
    return float(ranking.metrics()["eval_mrr@10"])


def make_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags for model, data and training."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("model_dir", "data_dir", "work_dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--task_name", default="sts-b")
    parser.add_argument("--loss", default="cosent")
    for name in ("train_file", "eval_file"):
        parser.add_argument(f"--{name}")
    for name, default in (("rows", 0), ("seeds", 3), ("max_seq_length", 64), ("batch_size", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--batch_sampler", default="batch_sampler")
    parser.add_argument("--same_optimizer", action="store_true")
    parser.add_argument("--peer_python", default=sys.executable)
    return parser


def main() -> None:
    """Trains and evaluates; prints and writes the results."""
    args = make_parser(__doc__.splitlines()[0]).parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    train, judged = prepare(args)
    steps = len(train.matches) // args.batch_size
    untrained, *ours = train_ours(args, steps)
    theirs = train_theirs(args, steps)
    found = {
        name: [round(metric(judged, vectors, args.loss), 4) for vectors in values]
        for name, values in (("untrained", [untrained]), ("ours", ours), ("theirs", theirs))
    }
    results = {
        **{"loss": args.loss, "rows": len(train.matches), "steps": steps, "texts": len(judged)},
        "metric": "Spearman" if args.loss == "cosent" else "MRR@10",
        **{"bert_tf": found["ours"], "sentence-transformers": found["theirs"]},
        "before": found["untrained"][0],
        "difference of means": round(float(np.mean(found["ours"]) - np.mean(found["theirs"])), 4),
    }
    print(results)
    name = f"embeddings_{args.name}{'_same_optimizer' * args.same_optimizer}"
    timing.write_results(name, results, "tensorflow", "keras")


if __name__ == "__main__":
    main()
