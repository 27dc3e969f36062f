"""Loads the weights of an original checkpoint into a BERT model of Hugging Face's transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

# Parts of transformers' parameter names -> parts of the original's names.
_NAMES = {
    ".layer.": ".layer_",
    ".": "/",
    "LayerNorm/weight": "LayerNorm/gamma",
    "LayerNorm/bias": "LayerNorm/beta",
    "_embeddings/weight": "_embeddings",
    "classifier/weight": "output_weights",
    "classifier/bias": "output_bias",
}


def take_weights(model: Any, path: Path) -> None:
    """Loads the arrays of a .npz file, stored under the original's names, into a model.

    Parameters that the file lacks, such as those of a new head, are not changed.

    Raises:
        KeyError: the file lacks a weight of the encoder.
    """
    values = np.load(path)
    state = model.state_dict()
    for name, target in state.items():
        if name.endswith("position_ids"):
            continue
        stored = name
        for theirs, original in _NAMES.items():
            stored = stored.replace(theirs, original)
        is_kernel = stored.endswith("/weight")
        stored = stored.replace("/weight", "/kernel")
        if stored in values or name.startswith("bert."):
            value = values[stored]
            target.copy_(torch.tensor(value.T if is_kernel else value))
    model.load_state_dict(state)
