"""Checks that an encoder read from a SavedModel gives the same outputs as the SavedModel.

A model with a different activation or layer order can have weights of the same names and shapes.
Fine-tuning it as BERT would silently give worse results.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints.formats import Source
from bert_tf.checkpoints.formats.saved_model import ENCODER_INPUTS
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, reason
from bert_tf.modeling import BertModel

# Outputs are of order 1. Rounding changes them by 1e-5, the wrong form of gelu (tanh, erf) by 2e-3.
_TOLERANCE = 1e-3
_LENGTH = 12


def require_same_outputs(source: Source, config: BertConfig) -> None:
    """Raises a UserError if `source` and a BertModel with its weights give different outputs."""
    length = min(_LENGTH, config.max_position_embeddings)
    row, position = np.mgrid[:2, :length]
    # The second row has two segments, and padding at its end.
    input_mask = (row == 0) | (position < 8)
    features = {
        "input_ids": (row * length + position) % config.vocab_size,
        "input_mask": input_mask,
        "segment_ids": ((row == 1) & (position >= 4)) % config.type_vocab_size,
    }
    with tf.device("/CPU:0"):
        inputs = {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}
        expected = _run_module(source.path, list(inputs.values()))
        model = BertModel(config, zero_init_encoder=True, dtype="float32")
        variables = checkpoints.named_variables(model)
        for name, value in source.read(variables.keys() & source.shapes().keys()):
            variables[name].assign(value)
        outputs = model(inputs, training=False)
    actual = [outputs[name].numpy() for name in ("sequence_output", "pooled_output")]
    difference = max(
        float(np.max(np.abs(actual[0] - expected[0])[input_mask])),
        float(np.max(np.abs(actual[1] - expected[1]))),
    )
    # `difference > _TOLERANCE` would be false for NaN, which must also be rejected.
    if not difference <= _TOLERANCE:
        problem = f"its outputs differ from BERT's by up to {difference:.2g}"
        advice = "It has a different architecture and cannot be fine-tuned as BERT"
        raise UserError(f"{source.path} has the weights of a BERT model, but {problem}. {advice}")


def _run_module(path: str, values: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns `sequence_output` [2, S, H] and `pooled_output` [2, H] of a module."""
    try:
        module: Any = tf.saved_model.load(path)
        try:
            outputs = module(dict(zip(ENCODER_INPUTS, values, strict=True)), training=False)
        except (ValueError, TypeError):
            # Encoders on TensorFlow Hub up to version 2 took and returned lists.
            outputs = module(values, training=False)
        if not isinstance(outputs, dict):
            outputs = dict(zip(("pooled_output", "sequence_output"), outputs, strict=True))
        return outputs["sequence_output"].numpy(), outputs["pooled_output"].numpy()
    except (AttributeError, KeyError, OSError, TypeError, ValueError, tf.errors.OpError) as error:
        kind = f"a TensorFlow Hub encoder with inputs {', '.join(ENCODER_INPUTS)}"
        raise UserError(f"{path} cannot be run as {kind}: {reason(error)}") from error
