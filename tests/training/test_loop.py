"""The training loop: output files, signals and errors."""

import dataclasses
import os
import signal
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints, training
from bert_tf.base.errors import Terminated, UserError, WorkerLost
from bert_tf.options import TrainingOptions
from bert_tf.training import loop
from bert_tf.training.curve import TrainingCurve, read_table
from tests.modeling.helpers import config, load, set_head
from tests.oracle import golden
from tests.training.helpers import (
    ONE_DEVICE,
    Classifier,
    broken_loss,
    classifier_loss,
    load_batches,
    make_loss,
    make_state,
)
from tests.training.test_step import assert_matches_dense_golden


def _train(folder, batches, *, loss_fn=classifier_loss, steps=10, every=5, worker=0, curve=None):
    """Trains in a folder, resuming from its last checkpoint."""
    model = set_head(load(Classifier(config(), 2)), "classifier2")
    state = make_state(model, 1e-3, 10, 3)
    prefix = checkpoint.latest(str(folder))
    if prefix:
        checkpoint.restore(model, prefix)
        checkpoints.restore_training_state(state, prefix)
    start_step = state.step
    training.train(
        training.make_train_step(state, make_loss(loss_fn), TrainingOptions(), ONE_DEVICE),
        state,
        batches[start_step:] if isinstance(batches, list) else batches,
        TrainingOptions(output_dir=str(folder), save_checkpoints_steps=every),
        dataclasses.replace(ONE_DEVICE, worker=worker),
        steps,
        curve=curve,
    )


def _batches_with_action(action, after):
    """Yields the golden batches, and calls `action` after some of them."""
    batches = load_batches()
    for index in range(100):
        if index == after:
            action()
        yield batches[index % len(batches)]


def _values(folder):
    prefix = checkpoint.latest(str(folder))
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def test_short_runs_write_a_curve_for_tensorboard(tmp_path):
    """The original wrote a point every 100 steps, which is none or two in a short run."""
    recorded = {}
    for total in (10, 250, 100_000):
        state = types.SimpleNamespace(step=0)
        recorder = loop._Recorder(state, str(tmp_path), total, True, None, None)
        recorder._progress.close()
        written = recorded[total] = []
        recorder._scalars = types.SimpleNamespace(write=lambda step, _, to=written: to.append(step))
        names = ("loss", "learning_rate", "gradient_norm", "loss_scale", "sequences", "tokens")
        for step in range(1, min(total, 300) + 1):
            recorder.record(step, dict.fromkeys(names, 1.0))
    assert recorded[10] == [*range(1, 11)]
    assert recorded[250] == [*range(2, 251, 2)]
    assert recorded[100_000] == [100, 200, 300]


def test_resumed_run_matches_the_original(tmp_path):
    batches = load_batches()
    _train(tmp_path, batches, steps=6, every=4)
    assert checkpoint.step_of(checkpoint.latest(str(tmp_path))) == 6
    _train(tmp_path, batches, every=4)
    names = sorted(path.name for path in tmp_path.glob("*.index"))
    assert names == [f"model.ckpt-{step}.index" for step in ("0", "10", "4", "6", "8")]
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    _train(tmp_path, batches, every=4)
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    # Resuming after 6 steps gives the weights of the original's ten steps.
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    assert_matches_dense_golden(_values(tmp_path), dense)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGTERM, Terminated),
        (signal.SIGINT, KeyboardInterrupt),
        (signal.SIGHUP, Terminated),
    ],
)
def test_signal_stops_with_a_checkpoint(tmp_path, number, error):
    handler = signal.getsignal(number)
    with pytest.raises(error):
        _train(tmp_path, _batches_with_action(lambda: os.kill(os.getpid(), number), 3))
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0", "model.ckpt-4"]
    assert signal.getsignal(number) is handler
    _train(tmp_path, load_batches())
    dense = np.load(golden("training/classifier_10steps_onehot.npz"))
    assert_matches_dense_golden(_values(tmp_path), dense)


# As in the background (`&`) of a shell script, and with nohup.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signal_does_not_stop_training(tmp_path, number):
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        _train(tmp_path, _batches_with_action(lambda: os.kill(os.getpid(), number), 3))
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, handler)
    assert checkpoint.names_in(str(tmp_path))[-1] == "model.ckpt-10"


def test_second_ctrl_c_stops_immediately(tmp_path):
    def interrupt_twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, _batches_with_action(interrupt_twice, 3))
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0"]


def test_training_in_a_background_thread(tmp_path):
    # Only the main thread can handle signals, but notebook servers may use another one.
    thread = threading.Thread(target=_train, args=(tmp_path, load_batches()))
    thread.start()
    thread.join()
    assert checkpoint.names_in(str(tmp_path))[-1] == "model.ckpt-10"


def test_stop_flag_of_another_worker_stops_training(tmp_path):
    """Stop flags are summed over processes, so that all of them stop and save."""
    state = make_state(load(Classifier(config(), 2)), 1e-3, 10, 3)
    iterations = state.optimizer.iterations
    metrics = {"loss": 1.0, "gradient_norm": 1.0, "learning_rate": 1e-3}
    metrics |= {"sequences": 4.0, "tokens": 9.0, "loss_scale": 1.0}

    def step(batch, stop):
        iterations.assign_add(1)
        values = {**metrics, "stop": iterations.numpy() == 2}
        return {name: tf.constant(value) for name, value in values.items()}

    options = TrainingOptions(output_dir=str(tmp_path), save_checkpoints_steps=5)
    devices = dataclasses.replace(ONE_DEVICE, workers=2)
    with pytest.raises(Terminated):
        training.train(step, state, iter(range(10)), options, devices, 10)
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0", "model.ckpt-2"]


def test_a_checkpoint_never_has_steps_that_the_curve_lacks(tmp_path, monkeypatch):
    recorded = []

    def save(self, snapshot):
        recorded.append([row[0] for row in read_table(str(tmp_path / "training_curve.tsv"))])

    monkeypatch.setattr(loop.AsyncSaver, "save", save)
    curve = TrainingCurve(str(tmp_path), 0)
    _train(tmp_path, load_batches(), steps=6, every=3, curve=curve)
    assert recorded == [[], [1, 2, 3], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("every", [2, 5])
def test_nan_loss_stops_before_saving(tmp_path, every):
    loss_fn = lambda outputs, batch: classifier_loss(outputs, batch) * float("nan")  # noqa: E731
    with pytest.raises(UserError, match=r"loss is nan at step 1.*rate 0") as error:
        _train(tmp_path, load_batches(), loss_fn=loss_fn, every=every)
    assert "good" not in str(error.value)  # as that of step 0 is not trained
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0"]


def test_non_finite_gradient_stops_at_the_last_step(tmp_path):
    with pytest.raises(UserError, match=r"gradient norm is (inf|nan) at step 1"):
        _train(tmp_path, load_batches(), loss_fn=broken_loss(float("inf")), steps=1)
    assert checkpoint.names_in(str(tmp_path)) == ["model.ckpt-0"]


def test_out_of_memory_error_names_four_flags():
    with pytest.raises(UserError) as error, training.explained_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "OOM\nHint: If you want much more")
    message = str(error.value)
    assert "\n" not in message
    assert "much more" not in message
    for flag in ("gradient_accumulation_steps", "recompute_layers", "precision", "max_seq_length"):
        assert f"--{flag}" in message


def test_lost_worker_exit_code():
    raises = pytest.raises(WorkerLost, match="Start all workers again")
    with raises as error, training.explained_errors(workers=2):
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")
    assert error.value.exit_code == 75
    with pytest.raises(tf.errors.UnavailableError), training.explained_errors():
        raise tf.errors.UnavailableError(None, None, "single process")


def test_only_the_chief_writes(tmp_path):
    _train(tmp_path, load_batches(), steps=3, worker=1)
    assert list(tmp_path.iterdir()) == []


def test_signal_during_the_last_step(tmp_path):
    batches = _batches_with_action(lambda: os.kill(os.getpid(), signal.SIGTERM), 4)
    with pytest.raises(Terminated):
        _train(tmp_path, batches, steps=5)
    assert checkpoint.names_in(str(tmp_path))[-1] == "model.ckpt-5"


def test_full_disk_error_differs_from_out_of_memory():
    with pytest.raises(UserError, match="disk is full"), training.explained_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "x.v2; No space left on device")


def test_removed_records_raise_user_error(tmp_path):
    dataset = tf.data.TFRecordDataset(str(tmp_path / "gone.tf_record"))
    with pytest.raises(UserError, match="A file was removed"), training.explained_errors():
        next(iter(dataset))
