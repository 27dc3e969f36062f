"""Estimates the memory of a training run before it begins."""

from bert_tf.config import BertConfig

# Bytes of a value that is kept for the gradient. In 16 bits, statistics of normalisations and draws
# of dropout stay in float32.
_BYTES = {"float32": 4.0, "bfloat16": 2.8, "float16": 2.8}
# Number of copies of all parameters, 4 bytes each, during the backward pass (weights, two moments,
# the gradient; with micro-batches also their sums) and during the update (also the new weights).
# Measured by benchmarks/memory.py, within a tenth.
_SETS, _SETS_WITH_PIECES, _SETS_IN_UPDATE = 4, 9, 9.7


def estimate_training_bytes(
    config: BertConfig,
    num_parameters: int,
    rows: int,
    length: int,
    *,
    precision: str = "float32",
    accumulation_steps: int = 1,
    recompute_layers: bool = False,
) -> int:
    """Returns the bytes that a device needs for training, without TensorFlow's own 0.5 GB.

    `num_parameters` counts the whole model; a batch on this device has `rows` of `length` tokens.
    """
    parameters = 4 * num_parameters
    sets = _SETS if accumulation_steps == 1 else _SETS_WITH_PIECES
    size = _BYTES[precision]
    rows = -(-rows // accumulation_steps)
    hidden = rows * length * config.hidden_size * size
    intermediate = rows * length * config.intermediate_size * size
    scores = rows * config.num_attention_heads * length * length * size
    # Projections, contexts and inputs of the normalisations; inputs, outputs and terms of gelu;
    # attention scores, probabilities and masks.
    layer = 16 * hidden + 6 * intermediate + 4 * scores
    layers = config.num_hidden_layers
    kept = layer + layers * hidden if recompute_layers else layers * layer
    return int(max(sets * parameters + kept, _SETS_IN_UPDATE * parameters))
