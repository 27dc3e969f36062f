"""Hugging Face's BERT on PyTorch: the peer of fine_tuning.py."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.torch_weights import take_weights

DECAY, WARM_UP_STEPS, STEPS = 0.01, 1000, 10_000


def peer_of(folder: Path) -> Any:
    """Builds the peer with our weights and its default attention (SDPA)."""
    settings = json.loads((folder / "bert_config.json").read_text())
    # The original's gelu.
    settings["hidden_act"] = "gelu_pytorch_tanh"
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**settings))
    take_weights(model, folder / "weights.npz")
    return model


def inputs(rows: dict[str, np.ndarray], numbers: np.ndarray, padded: bool) -> dict[str, Any]:
    """Returns the peer's inputs, cut after the longest row unless `padded`."""
    length = None if padded else int(rows["input_mask"][numbers].sum(1).max())
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    batch = {peer: rows[ours][numbers, :length] for peer, ours in names.items()}
    batch["labels"] = rows["label_ids"][numbers]
    return {name: torch.tensor(value).long() for name, value in batch.items()}


def make_work(
    folder: Path, batch_size: int, rate: float, precision: str, name: str, padded: bool
) -> Callable[[], None]:
    """Returns a function that trains on all rows once, as `Trainer` does."""
    rows = dict(np.load(folder / "rows.npz"))
    count = len(rows["input_ids"])
    torch.manual_seed(1)
    model = peer_of(folder)

    def cast() -> Any:
        if precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", torch.bfloat16)

    with torch.inference_mode(), cast():
        first = inputs(rows, np.arange(batch_size), padded=True)
        logits = model.eval()(**first).logits
        np.save(folder / f"{name}.npy", logits.float().numpy())
    model.train()
    plain = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": DECAY},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, fused=True)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, WARM_UP_STEPS, STEPS)
    batches = _batches(count, batch_size)

    def work() -> None:
        for numbers in itertools.islice(batches, count // batch_size):
            with cast():
                loss = model(**inputs(rows, numbers, padded)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        loss.item()

    return work


def _batches(count: int, batch_size: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(count)
        yield from (order[first : first + batch_size] for first in range(0, count, batch_size))
