"""Training steps, compared with the original (golden/training), and gradient accumulation."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints, training
from bert_tf.modeling.losses import cross_entropy, span_loss
from bert_tf.optimization import create_optimizer
from bert_tf.training.step import mean_loss
from tests.modeling.helpers import config, load, set_head
from tests.oracle import golden
from tests.training.helpers import (
    NO_STOP,
    STRATEGY,
    Classifier,
    Pretrainer,
    SpanLabeler,
    as_loss,
    batches_of,
    classifier_loss,
    make_optimizer,
    pretraining_loss,
)


def _steps(
    model,
    optimizer,
    loss_fn,
    batches,
    first,
    last,
    options=training.StepOptions(),  # noqa: B008
):
    """Runs some steps; returns their losses and learning rates."""
    step = training.make_train_step(
        training.TrainState(model, optimizer), as_loss(loss_fn), STRATEGY, options
    )
    figures = [step(batches[index % len(batches)], NO_STOP) for index in range(first, last)]
    return [[float(figure[name]) for figure in figures] for name in ("loss", "learning_rate")]


def _values(model, optimizer, tmp_path):
    prefix = checkpoints.save_snapshot(str(tmp_path), checkpoints.snapshot(model, optimizer))
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def compare_with_dense_golden(values, expected):
    finals = [key for key in expected.files if key.startswith("final/")]
    for key in finals:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, expected[key], atol=5e-6, rtol=0, err_msg=key)
    for name, norm in zip(expected["variable_names"], expected["variable_l2"], strict=True):
        actual = np.linalg.norm(values[str(name).removeprefix("final/")].astype("float64"))
        assert actual == pytest.approx(norm, rel=1e-5, abs=5e-6), name
    assert len(finals) > 20


@pytest.mark.parametrize(
    ("use_one_hot_embeddings", "skip_padding"), [(False, False), (True, False), (False, True)]
)
def test_classifier_steps_match_the_original(use_one_hot_embeddings, skip_padding, tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    model = load(Classifier(config(), 2, use_one_hot_embeddings))
    set_head(model, "classifier2")
    optimizer = make_optimizer(model, 1e-3, 10, 3)
    options = training.StepOptions(skip_padding=skip_padding)
    losses, rates = _steps(model, optimizer, classifier_loss, batches_of(case), 0, 10, options)
    np.testing.assert_allclose(rates, dense["step/learning_rate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, dense["step/loss"], atol=2e-5, rtol=0)
    np.testing.assert_allclose(losses, case["step/loss"], atol=2e-3, rtol=0)
    values = _values(model, optimizer, tmp_path)
    compare_with_dense_golden(values, dense)
    assert values["global_step"] == 10


@pytest.mark.parametrize("use_one_hot_embeddings", [False, True])
def test_pretraining_steps_match_the_original(use_one_hot_embeddings, tmp_path):
    case = np.load(golden("training/pretraining_5steps.npz"))
    dense = np.load(golden("training/pretraining_5steps_onehot.npz"))
    model = load(Pretrainer(config(), use_one_hot_embeddings))
    optimizer = make_optimizer(model, 1e-3, 5, 2)
    losses, rates = _steps(model, optimizer, pretraining_loss, batches_of(case), 0, 5)
    np.testing.assert_allclose(rates, dense["step/learning_rate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, dense["step/loss"], atol=2e-5, rtol=0)
    np.testing.assert_allclose(losses, case["step/loss"], atol=2e-3, rtol=0)
    compare_with_dense_golden(_values(model, optimizer, tmp_path), dense)


def test_training_resumes_from_an_original_checkpoint(tmp_path):
    case = np.load(golden("training/pretraining_5steps.npz"))
    resumed = np.load(golden("training/pretraining_resume_steps6_8.npz"))
    model = Pretrainer(config())
    prefix = str(golden("training/pretraining_5steps_ckpt") / "model.ckpt-5")
    assert checkpoint.restore(model, prefix).new == ()
    optimizer = make_optimizer(model, 1e-3, 8, 2)
    assert checkpoints.restore_optimizer(optimizer, prefix)
    assert int(optimizer.iterations.numpy()) == 5
    losses, rates = _steps(model, optimizer, pretraining_loss, batches_of(case), 5, 8)
    np.testing.assert_allclose(rates, resumed["step/learning_rate"], rtol=1e-6, atol=1e-9)
    # The original clipped these steps by the norm of un-summed slices.
    np.testing.assert_allclose(losses, resumed["step/loss"], atol=2e-3, rtol=0)
    values = _values(model, optimizer, tmp_path)
    finals = [key for key in resumed.files if key.startswith("final/")]
    for key in finals:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, resumed[key], atol=1e-3, rtol=0, err_msg=key)
    assert len(finals) == 57


def test_span_losses_match_the_original():
    case = np.load(golden("forward/squad.npz"))
    model = load(set_head(SpanLabeler(config()), "squad"))
    batch = {key: tf.constant(case[key]) for key in ("input_ids", "input_mask", "segment_ids")}
    start, end = (tf.constant(case[f"{side}_positions"]) for side in ("start", "end"))

    def loss_fn(outputs, _):
        return tf.reduce_mean(span_loss(outputs["start_logits"], outputs["end_logits"], start, end))

    # The pooler does not affect this loss, so it has no slots.
    trained = [v for v in model.trainable_variables if not v.path.startswith("bert/pooler")]
    optimizer = create_optimizer(1e-3, 10, 2)
    optimizer.build(trained)
    losses = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = loss_fn(model(batch), batch)
        optimizer.apply(tape.gradient(loss, [v.value for v in trained]), trained)
        losses.append(float(loss))
    expected = case["train_losses_lr1e3_steps10_warmup2"]
    np.testing.assert_allclose(losses, expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("name", "model_class", "loss_fn"),
    [
        ("classifier_10steps", Classifier, classifier_loss),
        ("pretraining_5steps", Pretrainer, pretraining_loss),
    ],
)
def test_gradients_match_the_original(name, model_class, loss_fn):
    case = np.load(golden(f"training/{name}.npz"))
    arguments = [2] if model_class is Classifier else []
    model = load(model_class(config(), *arguments))
    if arguments:
        set_head(model, "classifier2")
    batch = batches_of(case)[0]
    variables = checkpoints.named_variables(model)
    with tf.GradientTape() as tape:
        loss = loss_fn(model(batch), batch)
    gradients = tape.gradient(loss, {key: v.value for key, v in variables.items()})
    for key, gradient in gradients.items():
        expected = case[f"grad_step0/{key}"]
        actual = tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0, err_msg=key)
    norm = tf.linalg.global_norm([tf.convert_to_tensor(g) for g in gradients.values()])
    assert float(norm) == pytest.approx(float(case["step/global_norm_dense"][0]), rel=1e-5)


def test_final_original_weights_are_read_from_its_checkpoint():
    # The sparse-clipping golden stores its final weights both as a checkpoint and as arrays.
    case = np.load(golden("training/classifier_10steps.npz"))
    model = Classifier(config(), 2)
    prefix = str(golden("training/classifier_10steps_ckpt") / "model.ckpt-10")
    assert checkpoint.restore(model, prefix).new == ()
    variables = checkpoints.named_variables(model)
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable.numpy(), case[f"final/{name}"], err_msg=name)
    assert checkpoint.step_of(prefix) == case["final/global_step"] == 10


def test_first_step_logits_match_the_original():
    case = np.load(golden("training/classifier_10steps.npz"))
    model = set_head(load(Classifier(config(), 2)), "classifier2")
    logits = np.asarray(model(batches_of(case)[0])["logits"])
    np.testing.assert_allclose(logits, case["step/logits"][0], atol=2e-5, rtol=0)


def _pretraining_replica_loss():
    """Both pre-training losses are means: over masked tokens, and over rows."""

    def share(outputs, batch, totals):
        logits, labels = outputs["masked_lm_logits"], batch["masked_lm_ids"]
        words = tf.reduce_sum(cross_entropy(logits, labels) * batch["masked_lm_weights"])
        follows = cross_entropy(
            outputs["next_sentence_logits"], batch["next_sentence_labels"][:, 0]
        )
        return words / (totals["masked"] + 1e-5) + tf.reduce_sum(follows) / totals["sequences"]

    return training.Loss(lambda batch: {"masked": tf.reduce_sum(batch["masked_lm_weights"])}, share)


@pytest.mark.parametrize(
    "options",
    [
        training.StepOptions(accumulation_steps=2),
        training.StepOptions(accumulation_steps=4, jit_compile=True),
        training.StepOptions(jit_compile=True),
        training.StepOptions(skip_padding=True),
        training.StepOptions(skip_padding=True, accumulation_steps=2),
    ],
    ids=[
        "2 micro-batches",
        "4 micro-batches, XLA",
        "XLA",
        "no padding",
        "2 micro-batches, no padding",
    ],
)
def test_micro_batches_and_xla_match_the_plain_step(options):
    batches = batches_of(np.load(golden("training/pretraining_5steps.npz")))
    losses, norms = [], []
    for loss, step_options in (
        (as_loss(pretraining_loss), training.StepOptions()),
        (_pretraining_replica_loss(), options),
    ):
        model = load(Pretrainer(config()))
        optimizer = make_optimizer(model, 1e-3, 5, 2)
        step = training.make_train_step(
            training.TrainState(model, optimizer), loss, STRATEGY, step_options
        )
        figures = [step(batches[index], NO_STOP) for index in range(3)]
        losses.append([float(figure["loss"]) for figure in figures])
        norms.append([float(figure["gradient_norm"]) for figure in figures])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-4)


def test_metrics_count_sequences_and_non_padding_tokens():
    batch = batches_of(np.load(golden("training/classifier_10steps.npz")))[0]
    model = load(Classifier(config(), 2))
    loss, options = as_loss(classifier_loss), training.StepOptions()
    step = training.make_train_step(
        training.TrainState(model, make_optimizer(model, 1e-3, 5, 2)), loss, STRATEGY, options
    )
    figures = step(batch, tf.constant(3))
    assert figures["sequences"] == len(batch["input_ids"])
    assert figures["tokens"] == np.sum(batch["input_mask"])
    assert figures["stop"] == 3


def test_a_loss_that_is_no_number_per_row_is_an_error():
    loss = mean_loss(lambda outputs, batch: outputs)
    totals = {"sequences": tf.constant(2.0)}
    assert float(loss.share(tf.constant([1.0, 2.0]), {}, totals)) == 1.5
    for shape in ((), (2, 3)):
        with pytest.raises(ValueError, match=r"must have a number for each row, \[B\]"):
            loss.share(tf.zeros(shape), {}, totals)
