"""Checkpoints written asynchronously during training."""

import concurrent.futures
import threading

import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints, training
from bert_tf.errors import UserError
from bert_tf.modeling import checkpoint_name
from bert_tf.training.async_checkpoint import AsyncSaver
from tests.modeling.helpers import config, load
from tests.oracle import golden
from tests.training.helpers import (
    NO_STOP,
    STRATEGY,
    Classifier,
    as_loss,
    batches_of,
    classifier_loss,
    make_optimizer,
)


@pytest.fixture(scope="module")
def trained():
    """A model, its optimizer, and a function that runs one step."""
    model = load(Classifier(config(), 2))
    optimizer = make_optimizer(model, 1e-2, 10, 0)
    options = training.StepOptions()
    state = training.TrainState(model, optimizer)
    step = training.make_train_step(state, as_loss(classifier_loss), STRATEGY, options)
    batch = batches_of(np.load(golden("training/classifier_10steps.npz")))[0]
    return model, optimizer, lambda: step(batch, NO_STOP)


def _values(model, optimizer):
    actual = {name: v.numpy() for name, v in checkpoints.named_variables(model).items()}
    for variable, slots in optimizer.slots():
        for slot, value in slots.items():
            actual[f"{checkpoint_name(variable)}/{slot}"] = value.numpy()
    return actual


def test_checkpoint_contains_the_values_of_its_step(trained, tmp_path, monkeypatch):
    model, optimizer, step = trained
    step()
    expected = _values(model, optimizer)
    may_write, write = threading.Event(), checkpoints.save_snapshot

    def delayed_write(folder, snapshot):
        assert may_write.wait(60)
        return write(folder, snapshot)

    monkeypatch.setattr(checkpoints, "save_snapshot", delayed_write)
    saver = AsyncSaver(str(tmp_path))
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
    now = _values(model, optimizer)
    assert any((now[name] != value).any() for name, value in expected.items())
    saver.close()


@pytest.fixture
def full_disk(monkeypatch):
    """Makes writes fail until the list is empty; each attempt removes one item."""
    left, write = ["full", "full"], checkpoints.save_snapshot

    def fail(folder, snapshot):
        if left:
            left.pop()
            raise UserError("No space left on device")
        return write(folder, snapshot)

    monkeypatch.setattr(checkpoints, "save_snapshot", fail)
    return left


def test_write_error_is_raised_at_the_next_call(trained, tmp_path, full_disk):
    model, optimizer, _ = trained
    saver = AsyncSaver(str(tmp_path))
    saver.save(checkpoints.snapshot(model, optimizer))
    concurrent.futures.wait([saver._pending], timeout=60)
    with pytest.raises(UserError, match="No space left"):
        saver.check()
    # An error while closing does not hide the one that ended training.
    saver.save(checkpoints.snapshot(model, optimizer))
    saver.close()
    assert not full_disk
    assert checkpoint.latest(str(tmp_path)) is None
