"""Mixed precision, and loss scaling for float16."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints, training
from bert_tf.base.errors import UserError
from bert_tf.modeling import BertClassifier
from bert_tf.options import ClassifierOptions, TrainingOptions
from bert_tf.tasks import classification
from bert_tf.training.precision import LossScale, cast_once, dtype_policy
from tests.modeling.helpers import config, load, set_head
from tests.training.helpers import (
    NO_STOP,
    ONE_DEVICE,
    broken_loss,
    classifier_loss,
    load_batches,
    make_loss,
    make_state,
)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_precision_applies_to_compute_not_weights(precision):
    with dtype_policy(precision):
        model = BertClassifier(config(), 2)
    outputs = model.bert({"input_ids": np.ones((2, 5), "int32")})
    assert keras.backend.standardize_dtype(outputs["sequence_output"].dtype) == precision
    variables = checkpoints.named_variables(model).values()
    assert {variable.dtype for variable in variables} == {"float32"}
    assert model({"input_ids": np.ones((2, 5), "int32")})["logits"].dtype == tf.float32


def _make_float16_step(loss_fn=classifier_loss):
    """Returns a step, and its state."""
    with dtype_policy("float16"):
        model = load(BertClassifier(config(), 2))
    state = make_state(set_head(model, "classifier2"), 1e-3, 10, 0, loss_scale=LossScale())
    step = training.make_train_step(state, make_loss(loss_fn), TrainingOptions(), ONE_DEVICE)
    return step, state


def test_overflow_skips_the_update_and_halves_the_scale():
    step, state = _make_float16_step(broken_loss(float("inf")))
    before = [variable.numpy() for variable in state.model.trainable_variables]
    metrics = step(load_batches()[0], NO_STOP)
    for variable, value in zip(state.model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert not np.isfinite(metrics["gradient_norm"])
    assert float(state.loss_scale.value.numpy()) == 2.0**14
    # The step counter still advances, as data order and learning rate depend on it.
    assert state.step == 1


def test_loss_scale_doubles_after_many_finite_steps():
    step, state = _make_float16_step()
    weights, scale, batch = state.model.head.output_weights, state.loss_scale, load_batches()[0]
    before = weights.numpy()
    # These weights have large gradients, which would overflow with the initial scale.
    scale.value.assign(2.0**8)
    scale.good_steps.assign(1998)
    step(batch, NO_STOP)
    assert float(scale.value.numpy()) == 2.0**8
    step(batch, NO_STOP)
    assert float(scale.value.numpy()) == 2.0**9
    assert int(scale.good_steps.numpy()) == 0
    assert np.abs(weights.numpy() - before).max() > 1e-5


def test_repeated_non_finite_gradients_stop_training(tmp_path):
    step, state = _make_float16_step(broken_loss(float("nan")))
    options = TrainingOptions(output_dir=str(tmp_path), save_checkpoints_steps=50)
    with pytest.raises(UserError, match=r"gradient norm is nan at step 16 "):
        training.train(step, state, load_batches() * 10, options, ONE_DEVICE, 100)


def test_loss_scale_does_not_change_gradients():
    norms = []
    for value in (2.0**10, 2.0**6):
        step, state = _make_float16_step()
        state.loss_scale.value.assign(value)
        norms.append(float(step(load_batches()[0], NO_STOP)["gradient_norm"]))
    assert norms[0] == pytest.approx(norms[1], rel=0.01)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_cast_once_gives_identical_results(precision):
    with dtype_policy(precision):
        model = load(BertClassifier(config(), 2))
        copy = cast_once(model, precision)
    dtypes = {"LayerNorm" in v.path: v.dtype for v in copy.trainable_variables}
    assert dtypes == {True: "float32", False: precision}
    inputs = {"input_ids": np.arange(20).reshape(2, 10)}
    np.testing.assert_array_equal(copy(inputs)["logits"], model(inputs)["logits"])
    assert cast_once(model, "float32") is model


def test_runs_with_several_seeds_have_the_same_precision(tiny, tmp_path, monkeypatch):
    """Models that are built outside of a run keep the policy of the program."""
    precisions, build = [], training.build_model

    def record(*args, **kwargs):
        model = build(*args, **kwargs)
        precisions.append((model.compute_dtype, keras.config.dtype_policy().name))
        return model

    monkeypatch.setattr(training, "build_model", record)
    flags = {**tiny.flags, "task_name": "mrpc", "data_dir": str(tiny.folder / "mrpc")}
    flags |= {"init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path), "num_runs": 2}
    steps = {"do_train": True, "do_eval": True, "num_train_epochs": 0.5}
    classification.run(ClassifierOptions(**flags, **steps, precision="bfloat16"))
    assert precisions == [("bfloat16", "float32")] * 2
