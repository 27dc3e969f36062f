"""Training steps, compared with the original, and gradient accumulation."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints, training
from bert_tf.modeling.losses import cross_entropy, span_loss
from bert_tf.optimization import create_optimizer
from bert_tf.options import TrainingOptions
from bert_tf.training.loss import mean_loss
from bert_tf.training.step import _Replica
from tests.modeling.helpers import config, load, set_head
from tests.oracle import golden
from tests.training.helpers import (
    NO_STOP,
    ONE_DEVICE,
    Classifier,
    Pretrainer,
    SpanLabeler,
    classifier_loss,
    load_batches,
    make_loss,
    make_state,
    pretraining_loss,
)


def _run_steps(state, loss_fn, batches, first, last, skip_padding=True):
    """Runs steps `first` to `last - 1`; returns their losses and learning rates."""
    loss, options = make_loss(loss_fn), TrainingOptions()
    step = training.make_train_step(
        state, loss, options, ONE_DEVICE, loss_uses_padding=not skip_padding
    )
    metrics = [step(batches[index % len(batches)], NO_STOP) for index in range(first, last)]
    return [[float(values[name]) for values in metrics] for name in ("loss", "learning_rate")]


def _save_and_read(state, tmp_path):
    tensors = checkpoints.snapshot(state.model, state.optimizer)
    prefix = checkpoints.save_snapshot(str(tmp_path), tensors)
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def assert_losses_match(losses, rates, case, dense):
    np.testing.assert_allclose(rates, dense["step/learning_rate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, dense["step/loss"], atol=2e-5, rtol=0)
    np.testing.assert_allclose(losses, case["step/loss"], atol=2e-3, rtol=0)


def assert_matches_dense_golden(values, expected):
    keys = [key for key in expected.files if key.startswith("final/")]
    for key in keys:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, expected[key], atol=5e-6, rtol=0, err_msg=key)
    for name, norm in zip(expected["variable_names"], expected["variable_l2"], strict=True):
        actual = np.linalg.norm(values[str(name).removeprefix("final/")].astype("float64"))
        assert actual == pytest.approx(norm, rel=1e-5, abs=5e-6), name
    assert len(keys) > 20


@pytest.mark.parametrize(
    ("use_one_hot_embeddings", "skip_padding"), [(False, False), (True, False), (False, True)]
)
def test_classifier_steps_match_the_original(use_one_hot_embeddings, skip_padding, tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    model = load(Classifier(config(), 2, use_one_hot_embeddings))
    state = make_state(set_head(model, "classifier2"), 1e-3, 10, 3)
    losses, rates = _run_steps(state, classifier_loss, load_batches(), 0, 10, skip_padding)
    assert_losses_match(losses, rates, case, dense)
    values = _save_and_read(state, tmp_path)
    assert_matches_dense_golden(values, dense)
    assert values["global_step"] == 10


@pytest.mark.parametrize("use_one_hot_embeddings", [False, True])
def test_pretraining_steps_match_the_original(use_one_hot_embeddings, tmp_path):
    case = np.load(golden("training/pretraining_5steps.npz"))
    dense = np.load(golden("training/pretraining_5steps_onehot.npz"))
    state = make_state(load(Pretrainer(config(), use_one_hot_embeddings)), 1e-3, 5, 2)
    batches = load_batches("pretraining_5steps")
    losses, rates = _run_steps(state, pretraining_loss, batches, 0, 5)
    assert_losses_match(losses, rates, case, dense)
    assert_matches_dense_golden(_save_and_read(state, tmp_path), dense)


def test_training_resumes_from_an_original_checkpoint(tmp_path):
    resumed = np.load(golden("training/pretraining_resume_steps6_8.npz"))
    model = Pretrainer(config())
    prefix = str(golden("training/pretraining_5steps_ckpt") / "model.ckpt-5")
    assert checkpoint.restore(model, prefix).new == ()
    state = make_state(model, 1e-3, 8, 2)
    checkpoints.restore_training_state(state, prefix)
    assert state.step == 5
    batches = load_batches("pretraining_5steps")
    losses, rates = _run_steps(state, pretraining_loss, batches, 5, 8)
    np.testing.assert_allclose(rates, resumed["step/learning_rate"], rtol=1e-6, atol=1e-9)
    # The original clipped these gradients by the norm of unsummed slices.
    np.testing.assert_allclose(losses, resumed["step/loss"], atol=2e-3, rtol=0)
    values = _save_and_read(state, tmp_path)
    keys = [key for key in resumed.files if key.startswith("final/")]
    for key in keys:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, resumed[key], atol=1e-3, rtol=0, err_msg=key)
    assert len(keys) == 57


def test_span_losses_match_the_original():
    case = np.load(golden("forward/squad.npz"))
    model = load(set_head(SpanLabeler(config()), "squad"))
    batch = {key: tf.constant(case[key]) for key in ("input_ids", "input_mask", "segment_ids")}
    start, end = (tf.constant(case[f"{side}_positions"]) for side in ("start", "end"))

    def loss_fn(outputs, _):
        return tf.reduce_mean(span_loss(outputs["start_logits"], outputs["end_logits"], start, end))

    # The pooler does not affect this loss, so it has no slots.
    variables = [v for v in model.trainable_variables if not v.path.startswith("bert/pooler")]
    optimizer = create_optimizer(1e-3, 10, 2)
    optimizer.build(variables)
    losses = []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = loss_fn(model(batch), batch)
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
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
    batch = load_batches(name)[0]
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


def test_original_checkpoint_has_the_final_weights():
    # This golden contains the final weights both as a checkpoint and as arrays.
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
    logits = np.asarray(model(load_batches()[0])["logits"])
    np.testing.assert_allclose(logits, case["step/logits"][0], atol=2e-5, rtol=0)


def _pretraining_replica_loss():
    """Returns the sum of the mean losses over masked tokens and over rows."""

    def share(outputs, batch, totals):
        logits, labels = outputs["masked_lm_logits"], batch["masked_lm_ids"]
        masked_lm = tf.reduce_sum(cross_entropy(logits, labels) * batch["masked_lm_weights"])
        next_sentence = cross_entropy(
            outputs["next_sentence_logits"], batch["next_sentence_labels"][:, 0]
        )
        masked_lm /= totals["masked"] + 1e-5
        return masked_lm + tf.reduce_sum(next_sentence) / totals["sequences"]

    return training.Loss(lambda batch: {"masked": tf.reduce_sum(batch["masked_lm_weights"])}, share)


@pytest.mark.parametrize(
    ("micro_batches", "jit_compile", "skip_padding"),
    [
        (2, False, False),
        pytest.param(4, True, False, marks=pytest.mark.slow),
        (1, True, False),
        (1, False, True),
        pytest.param(2, False, True, marks=pytest.mark.slow),
    ],
    ids=[
        "2 micro-batches",
        "4 micro-batches, XLA",
        "XLA",
        "no padding",
        "2 micro-batches, no padding",
    ],
)
def test_options_match_the_plain_step(micro_batches, jit_compile, skip_padding, plain_steps):
    losses, norms = _three_steps(
        _pretraining_replica_loss(), micro_batches, jit_compile, skip_padding
    )
    np.testing.assert_allclose(losses, plain_steps[0], rtol=1e-5)
    np.testing.assert_allclose(norms, plain_steps[1], rtol=1e-4)


@pytest.fixture(scope="module")
def plain_steps():
    return _three_steps(make_loss(pretraining_loss))


def _three_steps(loss, micro_batches=1, jit_compile=False, skip_padding=False):
    """Returns loss and gradient norm of each of three training steps."""
    batches = load_batches("pretraining_5steps")
    state = make_state(load(Pretrainer(config())), 1e-3, 5, 2)
    options = TrainingOptions(gradient_accumulation_steps=micro_batches)
    devices = dataclasses.replace(ONE_DEVICE, jit_compile=jit_compile)
    step = training.make_train_step(
        state, loss, options, devices, loss_uses_padding=not skip_padding
    )
    metrics = [step(batches[index], NO_STOP) for index in range(3)]
    return [[float(m[name]) for m in metrics] for name in ("loss", "gradient_norm")]


def test_metrics_include_sequence_and_token_counts():
    batch = load_batches()[0]
    state = make_state(load(Classifier(config(), 2)), 1e-3, 5, 2)
    loss = make_loss(classifier_loss)
    step = training.make_train_step(state, loss, TrainingOptions(), ONE_DEVICE)
    metrics = step(batch, tf.constant(3))
    assert metrics["sequences"] == len(batch["input_ids"])
    assert metrics["tokens"] == np.sum(batch["input_mask"])
    assert metrics["stop"] == 3


def test_mean_loss_requires_one_value_per_row():
    loss = mean_loss(lambda outputs, batch: outputs)
    totals = {"sequences": tf.constant(2.0)}
    assert float(loss.share(tf.constant([1.0, 2.0]), {}, totals)) == 1.5
    for shape in ((), (2, 3)):
        with pytest.raises(ValueError, match=r"must have the shape \[B\]"):
            loss.share(tf.zeros(shape), {}, totals)


def _in_batch_loss(outputs, batch):
    """Depends on all rows: cross entropy over the batch, which must be whole."""
    rows = tf.range(tf.shape(batch["label_ids"])[0])
    scores = tf.matmul(outputs["logits"], outputs["probabilities"], transpose_b=True)
    return cross_entropy(scores, rows)


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_cached_gradients_of_a_loss_over_the_batch(micro_batches):
    batch = load_batches()[0]
    found = []
    for count in (1, micro_batches):
        state = make_state(set_head(load(Classifier(config(), 2)), "classifier2"), 1e-3, 5, 2)
        loss = mean_loss(_in_batch_loss, ("label_ids",))
        options = TrainingOptions(gradient_accumulation_steps=count)
        replica = _Replica(state, loss, options, ONE_DEVICE, skip_padding=True)
        seed, totals = tf.constant([1, 0]), {"sequences": float(len(batch["label_ids"]))}
        if count == 1:
            found.append(replica.compute_gradients(batch, totals, seed, 1.0))
        else:
            share, cached = replica._cache_gradients(batch, totals, seed)
            found.append((share, replica._accumulate({**batch, **cached}, totals, seed, 1.0)[1]))
    (loss, gradients), (cached_loss, cached_gradients) = found
    assert float(cached_loss) == pytest.approx(float(loss), rel=1e-6)
    norm = float(tf.linalg.global_norm(gradients))
    assert norm > 1e-3
    for one, other in zip(gradients, cached_gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * norm)
