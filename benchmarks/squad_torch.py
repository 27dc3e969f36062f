"""Hugging Face's BERT on PyTorch, for squad_peer.py.

usage: python benchmarks/squad_torch.py train FOLDER NUM_TRAIN_STEPS
       python benchmarks/squad_torch.py score FILE PREDICTIONS

This is a separate script because PyTorch and TensorFlow can conflict in one process. `train` reads
`config.json`, `weights.npz` (from an original checkpoint), `train.npz` and `eval.npz` (rows) from
the folder, and writes `logits.npz`. `score` prints exact match and F1, computed by torchmetrics.
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

from benchmarks.torch_weights import load_weights

BATCH_SIZE, LEARNING_RATE, WARMUP_PROPORTION = 12, 3e-5, 0.1


def build_model(folder: Path) -> Any:
    """Builds the model with the weights of an original checkpoint."""
    settings = json.loads((folder / "config.json").read_text())
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**settings))
    load_weights(model, folder / "weights.npz")
    return model


class BertAdam(torch.optim.Optimizer):
    """The paper's optimizer: Adam without bias correction, with decoupled weight decay.

    `torch.optim.AdamW` corrects the bias, which makes the first thousand updates up to three times
    smaller.
    """

    @torch.no_grad()
    def step(self) -> None:
        """Updates the parameters that have gradients."""
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


def make_inputs(rows: dict[str, np.ndarray], indices: np.ndarray) -> dict[str, torch.Tensor]:
    """Returns the model's inputs."""
    names = {
        "input_ids": "input_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "segment_ids",
    }
    batch = {name: torch.tensor(rows[our_name][indices]).long() for name, our_name in names.items()}
    if "start_positions" in rows:
        batch["start_positions"] = torch.tensor(rows["start_positions"][indices]).long()
        batch["end_positions"] = torch.tensor(rows["end_positions"][indices]).long()
    return batch


def train(model: Any, rows: dict[str, np.ndarray], num_train_steps: int) -> None:
    """Trains the model with the original's optimizer and schedule."""
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = BertAdam(groups, {"lr": LEARNING_RATE})
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(num_train_steps * WARMUP_PROPORTION), num_train_steps
    )
    rng = np.random.default_rng(12345)
    count = len(rows["input_ids"])
    order = np.concatenate([rng.permutation(count) for _ in range(num_train_steps)][:64])
    model.train()
    for step in range(num_train_steps):
        indices = order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        # Twice as fast as float32; weights and evaluation stay in float32.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**make_inputs(rows, indices)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(
                f"peer: step {step} of {num_train_steps}, loss {loss.item():.3f}", file=sys.stderr
            )


def predict_logits(model: Any, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the start and end logits of all rows."""
    model.eval()
    logits: list[list[np.ndarray]] = [[], []]
    with torch.no_grad():
        for first in range(0, len(rows["input_ids"]), 32):
            last = min(first + 32, len(rows["input_ids"]))
            outputs = model(**make_inputs(rows, np.arange(first, last)))
            logits[0].append(outputs.start_logits.numpy())
            logits[1].append(outputs.end_logits.numpy())
    return [np.concatenate(parts) for parts in logits]


def train_and_predict(folder: Path, num_train_steps: int) -> None:
    """Trains the model, and writes the logits of all evaluation rows."""
    torch.manual_seed(12345)
    # Use all cores; the default may be lower.
    torch.set_num_threads(os.cpu_count() or 1)
    model = build_model(folder)
    train(model, dict(np.load(folder / "train.npz")), num_train_steps)
    start_logits, end_logits = predict_logits(model, dict(np.load(folder / "eval.npz")))
    np.savez(folder / "logits.npz", start=start_logits, end=end_logits)


def score(predict_file: Path, predictions: Path) -> None:
    """Prints exact match and F1 as JSON."""
    from torchmetrics.functional.text import squad

    contents = json.loads(predict_file.read_text(encoding="utf-8"))
    texts = json.loads(predictions.read_text(encoding="utf-8"))
    answers, predicted = [], []
    for entry in contents["data"]:
        for question in (q for paragraph in entry["paragraphs"] for q in paragraph["qas"]):
            keys = ("text", "answer_start")
            columns = {key: [answer[key] for answer in question["answers"]] for key in keys}
            answers.append({"id": question["id"], "answers": columns})
            predicted.append({"id": question["id"], "prediction_text": texts[question["id"]]})
    print(json.dumps({name: float(value) for name, value in squad(predicted, answers).items()}))


if __name__ == "__main__":
    _, command, path, argument = sys.argv
    if command == "train":
        train_and_predict(Path(path), int(argument))
    else:
        score(Path(path), Path(argument))
