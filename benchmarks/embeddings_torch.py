"""Trains with sentence-transformers, for embeddings_peer.py and embeddings.py.

usage: python benchmarks/embeddings_torch.py SETTINGS [--serve] [--gpu] [--bf16]

SETTINGS is a JSON file, see `Settings`. Trains, and writes the vectors of all texts. With --serve,
trains once for each line of the standard input instead, and prints the seconds, and those of the
processor, between the begin of the first step and the end of the last. --gpu trains on the first
GPU, and --bf16 in bfloat16. This file imports nothing of bert_tf, so that it can run in another
environment.
"""

import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
)
from transformers import TrainerCallback


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to train on, and how."""

    model_dir: str  # a folder of sentence-transformers
    train_file: str  # JSON lines with the keys a, b and, for cosent, s
    texts_file: str  # JSON lines with the key `text`: what to encode
    vectors_file: str  # .npy to write
    loss: str
    loss_scale: float
    batch_size: int
    learning_rate: float
    steps: int
    warmup_steps: int
    seed: int
    batch_sampler: str


def read_lines(path: str) -> list[dict[str, Any]]:
    """Reads JSON lines."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def make_loss(model: SentenceTransformer, settings: Settings) -> Any:
    """Returns the loss that corresponds to ours."""
    classes = {
        "multiple_negatives": losses.MultipleNegativesRankingLoss,
        "cosent": losses.CoSENTLoss,
    }
    return classes[settings.loss](model, scale=settings.loss_scale)


def make_trainer(
    model: SentenceTransformer, settings: Settings, folder: str
) -> SentenceTransformerTrainer:
    """Returns a trainer without logs and checkpoints."""
    rows = read_lines(settings.train_file)
    columns = {"anchor": [row["a"] for row in rows], "positive": [row["b"] for row in rows]}
    if "s" in rows[0]:
        columns["score"] = [row["s"] for row in rows]
    arguments = SentenceTransformerTrainingArguments(
        folder,
        max_steps=settings.steps,
        warmup_steps=settings.warmup_steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=0.01,
        seed=settings.seed,
        batch_sampler=settings.batch_sampler,
        use_cpu="--gpu" not in sys.argv,
        bf16="--bf16" in sys.argv,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    loss = make_loss(model, settings)
    return SentenceTransformerTrainer(model, arguments, Dataset.from_dict(columns), loss=loss)


class Clock(TrainerCallback):
    """Notes the times of the first step's begin and of the last step's end."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Notes the begin of the first step."""
        if state.global_step == 0:
            self.begin = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Notes the end of the newest step."""
        if state.global_step == state.max_steps and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.end = time.perf_counter(), time.process_time()


def serve(trainer: SentenceTransformerTrainer) -> None:
    """Trains for each line of the standard input; prints seconds."""
    clock = Clock()
    trainer.add_callback(clock)
    for _ in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            trainer.train()
        print(*(end - begin for begin, end in zip(clock.begin, clock.end, strict=True)), flush=True)


def main() -> None:
    """Trains and encodes."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    model = SentenceTransformer(settings.model_dir, device="cuda" if "--gpu" in sys.argv else "cpu")
    if "--serve" in sys.argv:
        serve(make_trainer(model, settings, str(Path(settings.vectors_file).parent)))
        return
    make_trainer(model, settings, str(Path(settings.vectors_file).parent)).train()
    texts = [row["text"] for row in read_lines(settings.texts_file)]
    np.save(settings.vectors_file, model.encode(texts, batch_size=32))


if __name__ == "__main__":
    main()
