"""How much memory a training will need: an estimate, before the work begins."""

from bert_tf.config import BertConfig

# Bytes of a number that is kept for the gradient. In 16 bits a part of them stays in float32:
# statistics of normalisations, draws of dropout.
_BYTES = {"float32": 4.0, "bfloat16": 2.8, "float16": 2.8}
# Sets of all parameters, 4 bytes each, that are alive while a gradient is computed (weights, two
# moments, the gradient as it grows; the sums of pieces come on top), and while the weights are
# updated (their new values, too). Measured by benchmarks/memory.py; it is right within a tenth
# there.
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
    parameters = 4 * num_parameters
    sets = _SETS if accumulation_steps == 1 else _SETS_WITH_PIECES
    size = _BYTES[precision]
    rows = -(-rows // accumulation_steps)
    hidden = rows * length * config.hidden_size * size
    intermediate = rows * length * config.intermediate_size * size
    scores = rows * config.num_attention_heads * length * length * size
    # Projections, contexts and what goes into the two normalisations; both sides of gelu and its
    # parts; scores, probabilities and masks.
    layer = 16 * hidden + 6 * intermediate + 4 * scores
    layers = config.num_hidden_layers
    kept = layer + layers * hidden if recompute_layers else layers * layer
    return int(max(sets * parameters + kept, _SETS_IN_UPDATE * parameters))
