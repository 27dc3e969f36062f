"""Hugging Face's BERT on PyTorch: the peer of squad_peer.py.

usage: python benchmarks/squad_torch.py train FOLDER NUM_TRAIN_STEPS
       python benchmarks/squad_torch.py score FILE PREDICTIONS

A script of its own, because PyTorch and TensorFlow can conflict in one process. `train` reads
`config.json`, `weights.npz` (an original checkpoint), `train.npz` and `eval.npz` (rows) of the
folder, and writes `logits.npz`. `score` prints exact match and F1 by torchmetrics.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import transformers

from benchmarks.torch_weights import take_weights

BATCH, RATE, WARM_UP = 12, 3e-5, 0.1


def peer_of(folder: Path) -> Any:
    """Builds the peer with the weights of an original checkpoint."""
    settings = json.loads((folder / "config.json").read_text())
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**settings))
    take_weights(model, folder / "weights.npz")
    return model


class BertAdam(torch.optim.Optimizer):
    """The optimizer of the paper: Adam without bias correction, with decoupled weight decay.

    `torch.optim.AdamW` corrects the bias, which makes the first thousand steps up to three times
    smaller.
    """

    @torch.no_grad()
    def step(self) -> None:
        """Updates all parameters that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
                state["m"].mul_(0.9).add_(gradient, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-6)
                update.add_(parameter, alpha=group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"])


def inputs(rows: dict[str, np.ndarray], numbers: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns the peer's inputs."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    batch = {peer: torch.tensor(rows[ours][numbers]).long() for peer, ours in names.items()}
    if "start_positions" in rows:
        batch["start_positions"] = torch.tensor(rows["start_positions"][numbers]).long()
        batch["end_positions"] = torch.tensor(rows["end_positions"][numbers]).long()
    return batch


def train(model: Any, rows: dict[str, np.ndarray], num_train_steps: int) -> None:
    """Trains the peer as the original would."""
    plain = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]
    optimizer = BertAdam(groups, {"lr": RATE})
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(num_train_steps * WARM_UP), num_train_steps
    )
    random = np.random.default_rng(12345)
    count = len(rows["input_ids"])
    order = np.concatenate([random.permutation(count) for _ in range(num_train_steps)][:64])
    model.train()
    for step in range(num_train_steps):
        numbers = order[step * BATCH : (step + 1) * BATCH]
        # Half the time of float32; weights and the logits of the answers stay float32.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**inputs(rows, numbers)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(
                f"peer: step {step} of {num_train_steps}, loss {loss.item():.3f}", file=sys.stderr
            )


def logits_of(model: Any, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Returns start and end logits of all rows."""
    model.eval()
    logits: list[list[np.ndarray]] = [[], []]
    with torch.no_grad():
        for first in range(0, len(rows["input_ids"]), 32):
            last = min(first + 32, len(rows["input_ids"]))
            out = model(**inputs(rows, np.arange(first, last)))
            logits[0].append(out.start_logits.numpy())
            logits[1].append(out.end_logits.numpy())
    return [np.concatenate(parts) for parts in logits]


def train_and_answer(folder: Path, num_train_steps: int) -> None:
    """Trains, and writes the logits of all rows."""
    torch.manual_seed(12345)
    # All cores; the default is one thread per two of them.
    torch.set_num_threads(os.cpu_count() or 1)
    model = peer_of(folder)
    train(model, dict(np.load(folder / "train.npz")), num_train_steps)
    start_logits, end_logits = logits_of(model, dict(np.load(folder / "eval.npz")))
    np.savez(folder / "logits.npz", start=start_logits, end=end_logits)


def score(predict_file: Path, predictions: Path) -> None:
    """Prints the metrics as JSON."""
    from torchmetrics.functional.text import squad

    contents = json.loads(predict_file.read_text(encoding="utf-8"))
    texts = json.loads(predictions.read_text(encoding="utf-8"))
    answers, predicted = [], []
    for entry in contents["data"]:
        for question in (q for paragraph in entry["paragraphs"] for q in paragraph["qas"]):
            given = question["answers"]
            columns = {key: [answer[key] for answer in given] for key in ("text", "answer_start")}
            answers.append({"id": question["id"], "answers": columns})
            predicted.append({"id": question["id"], "prediction_text": texts[question["id"]]})
    print(json.dumps({name: float(value) for name, value in squad(predicted, answers).items()}))


if __name__ == "__main__":
    _, what, first, second = sys.argv
    if what == "train":
        train_and_answer(Path(first), int(second))
    else:
        score(Path(first), Path(second))
