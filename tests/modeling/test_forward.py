"""Model outputs, compared with the original release (golden/forward)."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_tf.modeling import BertClassifier, BertModel, BertPretrainer, BertSpanLabeler, gelu
from bert_tf.modeling.layers import FlatDense, create_attention_mask, layer_norm_layer
from bert_tf.modeling.losses import cross_entropy, span_loss
from bert_tf.modeling.token_layout import PaddedLayout
from tests.modeling.helpers import config, load, masked_lm_loss, set_head
from tests.oracle import golden

CASES = ["alt_linear__b3_s9", "alt_relu__b2_s10", "alt_tiny__b2_s16", "main__b1_s64_full"]
CASES += ["main__b2_s16", "main__b3_s12_holes_allzero", "main__b3_s32", "main__b4_s7"]
CASES += ["main__b5_s1"]
TOLERANCE = 2e-5
# In rows whose mask is all zero, scores are near -10000, where float32 is coarse: TensorFlow
# versions differ by 5e-4.
ALL_ZERO_MASK_TOLERANCE = 2e-3


def _inputs(case):
    return {key: case[key] for key in ("input_ids", "input_mask", "segment_ids")}


def _assert_close(actual, expected, case, tolerance=TOLERANCE):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    rows = actual.shape[0] if actual.ndim and actual.shape[0] == len(case["input_mask"]) else None
    if rows is None:
        np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)
        return
    masked = np.asarray(case["input_mask"]).sum(axis=1) == 0
    np.testing.assert_allclose(actual[~masked], expected[~masked], atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        actual[masked], expected[masked], atol=ALL_ZERO_MASK_TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("use_one_hot_embeddings", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_pretrainer_matches_the_original(name, use_one_hot_embeddings):
    case = np.load(golden(f"forward/{name}.npz"))
    checkpoint = name.split("__")[0]
    model = load(BertPretrainer(config(checkpoint), use_one_hot_embeddings), checkpoint)
    encoded = model.bert(_inputs(case), return_attention_probs=True)

    _assert_close(encoded["embedding_output"], case["embedding_output"], case)
    for index, layer in enumerate(encoded["all_encoder_layers"]):
        _assert_close(layer, case[f"encoder_layer_{index}"], case)
    _assert_close(encoded["sequence_output"], case["sequence_output"], case)
    _assert_close(encoded["pooled_output"], case["pooled_output"], case)
    _assert_close(encoded["all_attention_probs"][0], case["attention_probs_layer_0"], case)

    outputs = model({**_inputs(case), "masked_lm_positions": case["masked_lm_positions"]})
    logits, labels = outputs["masked_lm_logits"], case["masked_lm_ids"]
    log_probs = np.asarray(ops.log_softmax(logits))
    shape = (*labels.shape, -1)
    _assert_close(log_probs, case["masked_lm_log_probs"].reshape(shape), case)
    loss, per_position = masked_lm_loss(logits, labels, case["masked_lm_weights"])
    _assert_close(per_position, case["masked_lm_example_loss"].reshape(labels.shape), case)
    tolerance = ALL_ZERO_MASK_TOLERANCE if "allzero" in name else TOLERANCE
    _assert_close(loss, case["masked_lm_loss"], case, tolerance)

    next_sentence = outputs["next_sentence_logits"]
    per_row = cross_entropy(next_sentence, case["next_sentence_labels"][:, 0])
    _assert_close(ops.log_softmax(next_sentence), case["next_sentence_log_probs"], case)
    _assert_close(per_row, case["next_sentence_example_loss"], case)


def test_intermediate_layer_matches_the_original():
    case = np.load(golden("forward/main__b2_s16.npz"))
    model = load(BertPretrainer(config())).bert
    layer = model.encoder.transformer_layers[0]
    mask = create_attention_mask(case["input_mask"], "float32")
    layout = PaddedLayout(case["input_mask"], 4)
    hidden = layout.unpad(case["embedding_output"])
    context, _ = layer.attention(hidden, mask, layout=layout)
    attended = layer.attention_output(context, hidden)
    intermediate = np.asarray(layer.intermediate(attended)).reshape(-1, 128)
    np.testing.assert_allclose(intermediate, case["intermediate_layer_0"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("name", "optional_inputs"),
    [("only_ids", []), ("no_segment", ["input_mask"]), ("no_mask", ["segment_ids"])],
)
def test_mask_and_segments_are_optional(name, optional_inputs):
    case = np.load(golden("forward/main__optional_inputs.npz"))
    model = load(BertPretrainer(config())).bert
    outputs = model({key: case[key] for key in ["input_ids", *optional_inputs]})
    for key in ("sequence_output", "pooled_output"):
        expected = case[f"{name}_{key}"]
        np.testing.assert_allclose(np.asarray(outputs[key]), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("labels", [2, 3])
def test_classifier_matches_the_original(labels):
    case = np.load(golden(f"forward/classifier{labels}.npz"))
    model = load(set_head(BertClassifier(config(), labels), f"classifier{labels}"))
    outputs = model(_inputs(case))
    losses = cross_entropy(outputs["logits"], case["label_ids"])
    for actual, key in [
        (outputs["logits"], "logits"),
        (outputs["probabilities"], "probabilities"),
        (losses, "per_example_loss"),
        (np.mean(losses), "loss"),
    ]:
        np.testing.assert_allclose(np.asarray(actual), case[key], atol=TOLERANCE, rtol=0)


def test_span_labeler_matches_the_original():
    case = np.load(golden("forward/squad.npz"))
    model = load(set_head(BertSpanLabeler(config()), "squad"))
    outputs = model(_inputs(case))
    loss = span_loss(
        outputs["start_logits"],
        outputs["end_logits"],
        case["start_positions"].reshape(-1),
        case["end_positions"].reshape(-1),
    )
    for actual, key in [
        (outputs["start_logits"], "start_logits"),
        (outputs["end_logits"], "end_logits"),
        (np.mean(loss), "loss"),
    ]:
        np.testing.assert_allclose(np.asarray(actual), case[key], atol=TOLERANCE, rtol=0)


def test_building_blocks_match_the_original():
    case = np.load(golden("forward/units.npz"))
    x = tf.constant(case["gelu_x"])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gelu(x)
    np.testing.assert_allclose(y, case["gelu_y"], atol=2e-6)
    np.testing.assert_allclose(tape.gradient(y, x), case["gelu_grad"], atol=1e-5)
    norm = layer_norm_layer("float32")
    norm.build(case["layer_norm_x"].shape)
    norm.gamma.assign(case["layer_norm_gamma"])
    norm.beta.assign(case["layer_norm_beta"])
    # One row has mean 1000, which leaves few digits for the deviations from it.
    np.testing.assert_allclose(
        np.asarray(norm(case["layer_norm_x"])), case["layer_norm_y"], atol=2e-4
    )
    # In the original's mask, 1 means "attend", and each query has its own row.
    bias = np.asarray(create_attention_mask(case["attention_mask_in"], "float32"))[:, 0]
    expected = (1.0 - case["attention_mask_out"]) * -10000.0
    np.testing.assert_array_equal(np.broadcast_to(bias, expected.shape), expected)


def test_inputs_must_be_a_dict():
    with pytest.raises(ValueError, match=r'inputs must be a dict \{"input_ids"'):
        BertModel(config())(np.zeros((1, 3), "int32"))


def test_too_long_sequence_is_rejected():
    model = BertModel(config())
    with pytest.raises(ValueError, match="65 tokens exceed max_position_embeddings=64"):
        model({"input_ids": np.zeros((1, 65), "int32")})


@pytest.mark.parametrize("activation", [None, gelu])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bias_is_fused_with_matmul_where_faster(dtype, training, activation):
    layer = FlatDense(6, activation=activation, bias_initializer="random_normal", dtype=dtype)
    layer.build((None, 4))
    x = tf.random.stateless_normal([5, 4], [1, 2])
    step = tf.function(lambda x: layer(x, training=training))
    expected = x @ tf.cast(layer.kernel, "float32") + tf.cast(layer.bias, "float32")
    if activation:
        expected = activation(expected)
    actual = tf.cast(step(tf.cast(x, dtype)), "float32")
    np.testing.assert_allclose(actual, expected, atol=0.02 if dtype == "bfloat16" else 1e-6)
    # TensorFlow fuses a matmul only with BiasAdd, not with other additions.
    graph = step.get_concrete_function(tf.cast(x, dtype)).graph
    op_types = {operation.type for operation in graph.get_operations()}
    is_unfused = training or (activation is gelu and dtype == "float32")
    assert ("BiasAdd" in op_types) == (not is_unfused)
