"""How much memory a training will need: an estimate, before the work begins."""

from bert_tf.config import BertConfig

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


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
    """Memory of a device that trains, in bytes; TensorFlow itself (some 0.5 GB) is not counted.

    Args:
        config: sizes of the encoder.
        num_parameters: of the whole model.
        rows: of a batch, on this device.
        length: of a row, in tokens.
        precision: that is computed in.
        accumulation_steps: pieces that the rows are computed in.
        recompute_layers: see `Encoder`.
    """
    # Weights, gradients and two moments, and one more set while they are clipped and summed up.
    state = num_parameters * 4 * (5 + (accumulation_steps > 1))
    size = _BYTES[precision]
    if precision != "float32":
        state += num_parameters * size
    rows = -(-rows // accumulation_steps)
    hidden = rows * length * config.hidden_size * size
    intermediate = rows * length * config.intermediate_size * size
    scores = rows * config.num_attention_heads * length * length * size
    # Kept for the gradient: projections, contexts and what goes into the two normalisations, with
    # its float32 copies; both sides of gelu and its parts; scores, probabilities and masks.
    layer = 16 * hidden + 6 * intermediate + 4 * scores
    layers = config.num_hidden_layers
    kept = layer + layers * hidden if recompute_layers else layers * layer
    return state + kept + 4 * hidden
