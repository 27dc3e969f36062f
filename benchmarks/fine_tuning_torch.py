"""Hugging Face's BERT on PyTorch, for fine_tuning.py."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.torch_weights import load_weights

WEIGHT_DECAY, WARMUP_STEPS, TRAIN_STEPS = 0.01, 1000, 10_000


def build_model(folder: Path) -> Any:
    """Builds the model with the weights in `folder` and default attention (SDPA)."""
    settings = json.loads((folder / "bert_config.json").read_text())
    # The original BERT code approximates GELU with tanh.
    settings["hidden_act"] = "gelu_pytorch_tanh"
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**settings))
    load_weights(model, folder / "weights.npz")
    return model


def make_inputs(
    rows: dict[str, np.ndarray], indices: np.ndarray, pad_to_max: bool
) -> dict[str, Any]:
    """Returns the model's inputs, trimmed to the batch's longest row unless `pad_to_max`."""
    length = None if pad_to_max else int(rows["input_mask"][indices].sum(1).max())
    # Name in transformers -> name in bert_tf.
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    batch = {their_name: rows[name][indices, :length] for their_name, name in names.items()}
    batch["labels"] = rows["label_ids"][indices]
    return {name: torch.tensor(value).long() for name, value in batch.items()}


def make_trainer(
    folder: Path, batch_size: int, learning_rate: float, precision: str, name: str, pad_to_max: bool
) -> Callable[[], None]:
    """Returns a function that trains on all rows once, like `transformers.Trainer`."""
    rows = dict(np.load(folder / "rows.npz"))
    num_rows = len(rows["input_ids"])
    torch.manual_seed(1)
    model = build_model(folder)

    def autocast() -> Any:
        if precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", torch.bfloat16)

    with torch.inference_mode(), autocast():
        first_batch = make_inputs(rows, np.arange(batch_size), pad_to_max=True)
        logits = model.eval()(**first_batch).logits
        np.save(folder / f"{name}.npy", logits.float().numpy())
    model.train()
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP_STEPS, TRAIN_STEPS)
    batches = _shuffled_batches(num_rows, batch_size)

    def train() -> None:
        for indices in itertools.islice(batches, num_rows // batch_size):
            with autocast():
                loss = model(**make_inputs(rows, indices, pad_to_max)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        loss.item()

    return train


def _shuffled_batches(num_rows: int, batch_size: int) -> Iterator[np.ndarray]:
    """Yields the row indices of batches without end; each epoch has its own random order."""
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(num_rows)
        yield from (order[first : first + batch_size] for first in range(0, num_rows, batch_size))
