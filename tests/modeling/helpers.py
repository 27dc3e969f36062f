"""Shared helpers for model tests: golden configurations, weights and losses."""

import keras
import numpy as np
from keras import ops

from bert_tf import checkpoint, checkpoints
from bert_tf.modeling import BertConfig
from bert_tf.modeling.losses import MASKED_LM_EPSILON, cross_entropy
from tests.oracle import golden


def config(name: str = "main", **changes) -> BertConfig:
    """Returns a golden configuration with changes."""
    path = golden(f"checkpoints/{name}/bert_config.json")
    return BertConfig.from_dict({**BertConfig.from_json_file(str(path)).to_dict(), **changes})


def load(model: keras.Model, name: str = "main") -> keras.Model:
    """Loads a golden checkpoint into a model."""
    checkpoint.restore(model, str(golden(f"checkpoints/{name}") / "bert_model.ckpt"))
    return model


def set_head(model: keras.Model, name: str) -> keras.Model:
    """Loads golden head weights into a model."""
    head = np.load(golden(f"checkpoints/heads/{name}.npz"))
    variables = checkpoints.named_variables(model)
    for key in head.files:
        variables[key].assign(head[key])
    return model


def masked_lm_loss(logits, label_ids, label_weights):
    """Computes the weighted mean loss over predictions.

    Args:
        logits: [B, P, V].
        label_ids: [B, P].
        label_weights: [B, P].

    Returns:
        The scalar loss, and the unweighted loss of each prediction [B, P].
    """
    per_position = cross_entropy(logits, label_ids)
    label_weights = ops.cast(label_weights, "float32")
    total = ops.sum(label_weights * per_position)
    return total / (ops.sum(label_weights) + MASKED_LM_EPSILON), per_position
