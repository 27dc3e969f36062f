"""Asynchronous writing of checkpoints."""

import concurrent.futures
import threading

import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints, training
from bert_tf.base.errors import UserError
from bert_tf.modeling import checkpoint_name
from bert_tf.options import TrainingOptions
from bert_tf.training.loop import AsyncSaver
from tests.modeling.helpers import config, load
from tests.training.helpers import (
    NO_STOP,
    ONE_DEVICE,
    Classifier,
    classifier_loss,
    load_batches,
    make_loss,
    make_state,
)


@pytest.fixture(scope="module")
def trained():
    """A model, its optimizer, and a function that runs a training step."""
    state = make_state(load(Classifier(config(), 2)), 1e-2, 10, 0)
    loss, batch = make_loss(classifier_loss), load_batches()[0]
    step = training.make_train_step(state, loss, TrainingOptions(), ONE_DEVICE)
    return state.model, state.optimizer, lambda: step(batch, NO_STOP)


def _values(model, optimizer):
    values = {name: v.numpy() for name, v in checkpoints.named_variables(model).items()}
    for variable, slots in optimizer.slots():
        for slot, value in slots.items():
            values[f"{checkpoint_name(variable)}/{slot}"] = value.numpy()
    return values


def test_checkpoint_contains_the_values_of_its_step(trained, tmp_path, monkeypatch):
    model, optimizer, step = trained
    step()
    expected = _values(model, optimizer)
    may_write, save_snapshot = threading.Event(), checkpoints.save_snapshot

    def save_later(*arguments):
        assert may_write.wait(60)
        return save_snapshot(*arguments)

    monkeypatch.setattr(checkpoints, "save_snapshot", save_later)
    saver = AsyncSaver(str(tmp_path), 5)
    saver.save(checkpoints.snapshot(model, optimizer))
    for _ in range(3):
        step()
    saver.check()
    assert checkpoint.latest(str(tmp_path)) is None
    may_write.set()
    saver.wait()
    prefix = str(tmp_path / "model.ckpt-1")
    assert checkpoint.latest(str(tmp_path)) == prefix
    actual = dict(checkpoint.read(prefix, list(expected)))
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    current = _values(model, optimizer)
    assert any((current[name] != value).any() for name, value in expected.items())
    saver.close()


@pytest.fixture
def full_disk(monkeypatch):
    """Makes writes fail; each failure pops an item of the list, until it is empty."""
    failures, save_snapshot = ["full", "full"], checkpoints.save_snapshot

    def fail(*arguments):
        if failures:
            failures.pop()
            raise UserError("No space left on device")
        return save_snapshot(*arguments)

    monkeypatch.setattr(checkpoints, "save_snapshot", fail)
    return failures


def test_write_error_is_raised_at_the_next_call(trained, tmp_path, full_disk):
    model, optimizer, _ = trained
    saver = AsyncSaver(str(tmp_path), 5)
    saver.save(checkpoints.snapshot(model, optimizer))
    concurrent.futures.wait([saver._pending], timeout=60)
    with pytest.raises(UserError, match="No space left"):
        saver.check()
    # `close` does not raise, so as not to hide an error that ended training.
    saver.save(checkpoints.snapshot(model, optimizer))
    saver.close()
    assert not full_disk
    assert checkpoint.latest(str(tmp_path)) is None
