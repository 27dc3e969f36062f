"""Whole training steps against the original's (golden/training), and what the loop writes."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, training
from bert_tf.errors import UserError
from bert_tf.modeling import BertClassifier, BertPretrainer, BertSpanLabeler
from bert_tf.modeling.losses import cross_entropy, masked_lm_loss, span_loss
from bert_tf.optimization import create_optimizer
from tests.modeling.helpers import config, load, set_head
from tests.oracle import golden

STRATEGY = tf.distribute.OneDeviceStrategy("/cpu:0")


class WithoutDropout:
    """The goldens were trained without any dropout, the classifier's fixed one included."""

    def call(self, inputs, training=None):
        return super().call(inputs, training=False)


class Classifier(WithoutDropout, BertClassifier):
    pass


class Pretrainer(WithoutDropout, BertPretrainer):
    pass


class SpanLabeler(WithoutDropout, BertSpanLabeler):
    pass


def classifier_loss(outputs, batch):
    return tf.reduce_mean(cross_entropy(outputs["logits"], batch["label_ids"]))


def pretraining_loss(outputs, batch):
    words, _ = masked_lm_loss(
        outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    labels = batch["next_sentence_labels"][:, 0]
    return words + tf.reduce_mean(cross_entropy(outputs["next_sentence_logits"], labels))


def _batches(case):
    inputs = {key.removeprefix("in/"): case[key] for key in case.files if key.startswith("in/")}
    count = len(inputs["input_ids"])
    return [
        {key: tf.constant(value[index]) for key, value in inputs.items()} for index in range(count)
    ]


def _optimizer(model, *schedule):
    optimizer = create_optimizer(*schedule)
    optimizer.build(model.trainable_variables)
    return optimizer


def _steps(model, optimizer, loss_fn, batches, first, last):
    """Losses and learning rates of some steps."""
    step = training.make_train_step(model, optimizer, loss_fn, STRATEGY)
    figures = [step(batches[index % len(batches)]) for index in range(first, last)]
    return [[float(figure[name]) for figure in figures] for name in ("loss", "learning_rate")]


def _values(model, optimizer, tmp_path):
    prefix = checkpoint.save(str(tmp_path), model, optimizer)
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def _compare_with_dense_golden(values, expected):
    finals = [key for key in expected.files if key.startswith("final/")]
    for key in finals:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, expected[key], atol=5e-6, rtol=0, err_msg=key)
    for name, norm in zip(expected["variable_names"], expected["variable_l2"], strict=True):
        actual = np.linalg.norm(values[str(name).removeprefix("final/")].astype("float64"))
        assert actual == pytest.approx(norm, rel=1e-5, abs=5e-6), name
    assert len(finals) > 20


@pytest.mark.parametrize("use_one_hot_embeddings", [False, True])
def test_classifier_steps_equal_the_original(use_one_hot_embeddings, tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    model = load(Classifier(config(), 2, use_one_hot_embeddings))
    set_head(model, "classifier2")
    optimizer = _optimizer(model, 1e-3, 10, 3)
    losses, rates = _steps(model, optimizer, classifier_loss, _batches(case), 0, 10)
    np.testing.assert_allclose(rates, dense["step/learning_rate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, dense["step/loss"], atol=2e-5, rtol=0)
    np.testing.assert_allclose(losses, case["step/loss"], atol=2e-3, rtol=0)
    values = _values(model, optimizer, tmp_path)
    _compare_with_dense_golden(values, dense)
    assert values["global_step"] == 10


@pytest.mark.parametrize("use_one_hot_embeddings", [False, True])
def test_pretraining_steps_equal_the_original(use_one_hot_embeddings, tmp_path):
    case = np.load(golden("training/pretraining_5steps.npz"))
    dense = np.load(golden("training/pretraining_5steps_onehot.npz"))
    model = load(Pretrainer(config(), use_one_hot_embeddings))
    optimizer = _optimizer(model, 1e-3, 5, 2)
    losses, rates = _steps(model, optimizer, pretraining_loss, _batches(case), 0, 5)
    np.testing.assert_allclose(rates, dense["step/learning_rate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(losses, dense["step/loss"], atol=2e-5, rtol=0)
    np.testing.assert_allclose(losses, case["step/loss"], atol=2e-3, rtol=0)
    _compare_with_dense_golden(_values(model, optimizer, tmp_path), dense)


def test_training_goes_on_from_a_checkpoint_of_the_original(tmp_path):
    case = np.load(golden("training/pretraining_5steps.npz"))
    resumed = np.load(golden("training/pretraining_resume_steps6_8.npz"))
    model = Pretrainer(config())
    prefix = str(golden("training/pretraining_5steps_ckpt") / "model.ckpt-5")
    assert checkpoint.restore(model, prefix).new == ()
    optimizer = _optimizer(model, 1e-3, 8, 2)
    assert checkpoint.restore_optimizer(optimizer, prefix)
    assert int(optimizer.iterations.numpy()) == 5
    losses, rates = _steps(model, optimizer, pretraining_loss, _batches(case), 5, 8)
    np.testing.assert_allclose(rates, resumed["step/learning_rate"], rtol=1e-6, atol=1e-9)
    # These steps of the original were clipped by the norm of un-summed slices.
    np.testing.assert_allclose(losses, resumed["step/loss"], atol=2e-3, rtol=0)
    values = _values(model, optimizer, tmp_path)
    finals = [key for key in resumed.files if key.startswith("final/")]
    for key in finals:
        actual = values[key.removeprefix("final/")]
        np.testing.assert_allclose(actual, resumed[key], atol=1e-3, rtol=0, err_msg=key)
    assert len(finals) == 57


def test_a_loss_that_is_no_number_stops_before_it_is_saved(tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    model = load(Classifier(config(), 2))
    batches = tf.data.Dataset.from_tensors(_batches(case)[0]).repeat()
    with pytest.raises(UserError, match=r"loss is nan at step 2.*still .*model\.ckpt-0"):
        training.train(
            model,
            _optimizer(model, 1e-3, 10, 3),
            lambda outputs, batch: classifier_loss(outputs, batch) * float("nan"),
            batches,
            strategy=STRATEGY,
            output_dir=str(tmp_path),
            num_train_steps=10,
            save_checkpoints_steps=2,
            batch_size=4,
        )
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0"]


def test_interruption_saves_what_is_done(tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    model = load(Classifier(config(), 2))
    first = _batches(case)[0]

    class Interrupted:
        def __iter__(self):
            yield from [first] * 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train(
            model,
            _optimizer(model, 1e-3, 10, 3),
            classifier_loss,
            Interrupted(),
            strategy=STRATEGY,
            output_dir=str(tmp_path),
            num_train_steps=10,
            save_checkpoints_steps=5,
            batch_size=4,
        )
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0", "model.ckpt-3"]


def test_span_losses_equal_the_original():
    case = np.load(golden("forward/squad.npz"))
    model = load(set_head(SpanLabeler(config()), "squad"))
    batch = {key: tf.constant(case[key]) for key in ("input_ids", "input_mask", "segment_ids")}
    start, end = (tf.constant(case[f"{side}_positions"]) for side in ("start", "end"))

    def loss_fn(outputs, _):
        return tf.reduce_mean(span_loss(outputs["start_logits"], outputs["end_logits"], start, end))

    # The pooler has no part in this loss, and so no slots.
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
def test_gradients_equal_the_original(name, model_class, loss_fn):
    case = np.load(golden(f"training/{name}.npz"))
    arguments = [2] if model_class is Classifier else []
    model = load(model_class(config(), *arguments))
    if arguments:
        set_head(model, "classifier2")
    batch = _batches(case)[0]
    variables = checkpoint.named_variables(model)
    with tf.GradientTape() as tape:
        loss = loss_fn(model(batch), batch)
    gradients = tape.gradient(loss, {key: v.value for key, v in variables.items()})
    for key, gradient in gradients.items():
        expected = case[f"grad_step0/{key}"]
        actual = tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0, err_msg=key)
    norm = tf.linalg.global_norm([tf.convert_to_tensor(g) for g in gradients.values()])
    assert float(norm) == pytest.approx(float(case["step/global_norm_dense"][0]), rel=1e-5)


def test_last_weights_of_the_original_are_read_from_its_checkpoint():
    # The golden with sparse clipping kept its last weights both as a checkpoint and as arrays.
    case = np.load(golden("training/classifier_10steps.npz"))
    model = Classifier(config(), 2)
    prefix = str(golden("training/classifier_10steps_ckpt") / "model.ckpt-10")
    assert checkpoint.restore(model, prefix).new == ()
    variables = checkpoint.named_variables(model)
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable.numpy(), case[f"final/{name}"], err_msg=name)
    assert checkpoint.step_of(prefix) == case["final/global_step"] == 10


def test_logits_of_the_first_step_equal_the_original():
    case = np.load(golden("training/classifier_10steps.npz"))
    model = set_head(load(Classifier(config(), 2)), "classifier2")
    logits = np.asarray(model(_batches(case)[0])["logits"])
    np.testing.assert_allclose(logits, case["step/logits"][0], atol=2e-5, rtol=0)


def test_loop_writes_the_checkpoints_of_the_original(tmp_path):
    case = np.load(golden("training/classifier_10steps.npz"))
    model = set_head(load(Classifier(config(), 2)), "classifier2")
    batches = tf.data.Dataset.from_tensor_slices(
        {key.removeprefix("in/"): case[key] for key in case.files if key.startswith("in/")}
    ).repeat()

    def run(total):
        optimizer = _optimizer(model, 1e-3, 10, 3)
        newest = checkpoint.latest(str(tmp_path))
        if newest:
            checkpoint.restore(model, newest)
            checkpoint.restore_optimizer(optimizer, newest)
        training.train(
            model,
            optimizer,
            classifier_loss,
            batches.skip(int(optimizer.iterations.numpy())),
            strategy=STRATEGY,
            output_dir=str(tmp_path),
            num_train_steps=total,
            save_checkpoints_steps=4,
            batch_size=4,
        )

    run(6)
    assert checkpoint.step_of(checkpoint.latest(str(tmp_path))) == 6
    run(10)
    names = sorted(path.name for path in tmp_path.glob("*.index"))
    assert names == [f"model.ckpt-{step}.index" for step in ("0", "10", "4", "6", "8")]
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    run(10)
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    # Stopped after 6 steps and gone on, it ends where the original's ten steps end.
    newest = checkpoint.latest(str(tmp_path))
    values = dict(checkpoint.read(newest, checkpoint.shapes(newest)))
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    _compare_with_dense_golden(values, dense)
