"""Models with the weights of the goldens."""

import keras
import numpy as np

from bert_tf import checkpoint
from bert_tf.modeling import BertConfig
from tests.oracle import golden


def config(name: str = "main", **changes) -> BertConfig:
    path = golden(f"checkpoints/{name}/bert_config.json")
    return BertConfig.from_dict({**BertConfig.from_json_file(str(path)).to_dict(), **changes})


def load(model: keras.Model, name: str = "main") -> keras.Model:
    checkpoint.restore(model, str(golden(f"checkpoints/{name}") / "bert_model.ckpt"))
    return model


def set_head(model: keras.Model, name: str) -> keras.Model:
    head = np.load(golden(f"checkpoints/heads/{name}.npz"))
    variables = checkpoint.named_variables(model)
    for key in head.files:
        variables[key].assign(head[key])
    return model
