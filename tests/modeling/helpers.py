"""Models with golden weights."""

import keras
import numpy as np
from keras import ops

from bert_tf import checkpoint, checkpoints
from bert_tf.modeling import BertConfig
from bert_tf.modeling.losses import MASKED_LM_EPSILON, cross_entropy
from tests.oracle import golden


def config(name: str = "main", **changes) -> BertConfig:
    path = golden(f"checkpoints/{name}/bert_config.json")
    return BertConfig.from_dict({**BertConfig.from_json_file(str(path)).to_dict(), **changes})


def load(model: keras.Model, name: str = "main") -> keras.Model:
    checkpoint.restore(model, str(golden(f"checkpoints/{name}") / "bert_model.ckpt"))
    return model


def set_head(model: keras.Model, name: str) -> keras.Model:
    head = np.load(golden(f"checkpoints/heads/{name}.npz"))
    variables = checkpoints.named_variables(model)
    for key in head.files:
        variables[key].assign(head[key])
    return model


def masked_lm_loss(logits, label_ids, label_weights):
    """Weighted mean over predictions: logits [B, P, V], ids and weights [B, P].

    Returns the scalar loss, and the unweighted loss of each prediction [B, P].
    """
    per_position = cross_entropy(logits, label_ids)
    label_weights = ops.cast(label_weights, "float32")
    total = ops.sum(label_weights * per_position)
    return total / (ops.sum(label_weights) + MASKED_LM_EPSILON), per_position
