"""Loads the weights of an original BERT checkpoint into a model of Hugging Face's transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

# Parts of transformers' parameter names -> parts of original names; replaced in this order.
_NAME_PARTS = {
    ".layer.": ".layer_",
    ".": "/",
    "LayerNorm/weight": "LayerNorm/gamma",
    "LayerNorm/bias": "LayerNorm/beta",
    "_embeddings/weight": "_embeddings",
    "classifier/weight": "output_weights",
    "classifier/bias": "output_bias",
}


def load_weights(model: Any, path: Path) -> None:
    """Loads the arrays of a .npz file, named as in original BERT checkpoints, into a model.

    Parameters missing from the file, such as those of a new head, are left unchanged.

    Raises:
        KeyError: an encoder weight is missing from the file.
    """
    values = np.load(path)
    state = model.state_dict()
    for name, parameter in state.items():
        if name.endswith("position_ids"):
            continue
        original_name = name
        for torch_part, original_part in _NAME_PARTS.items():
            original_name = original_name.replace(torch_part, original_part)
        is_kernel = original_name.endswith("/weight")
        original_name = original_name.replace("/weight", "/kernel")
        if original_name in values or name.startswith("bert."):
            value = values[original_name]
            parameter.copy_(torch.tensor(value.T if is_kernel else value))
    model.load_state_dict(state)
