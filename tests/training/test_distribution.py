"""Fine-tuning a classifier on several devices and processes, compared with one device.

`test_distributed_scripts.py` tests the other scripts.
"""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from bert_tf import checkpoint
from bert_tf.base.errors import UserError
from bert_tf.options import DeviceOptions
from bert_tf.training import Devices, open_devices
from bert_tf.training.devices import read_cluster
from tests.training.runs import ENVIRONMENT, LAUNCHER, PROCESS, Runs

# Batches of 12 of the 23 training rows span epoch boundaries. Evaluation has 11 rows and prediction
# 13, in batches of 8.
FLAGS = {
    "train_batch_size": 12,
    "num_train_epochs": 27,
    "learning_rate": 8e-4,
    "do_train": True,
    "do_eval": True,
    "do_predict": True,
}


def write_contradictory_data(source, target):
    """Copies the data, with five training rows duplicated under the opposite label.

    No model can fit these rows, so the loss stays far from 0: for a loss of 0.006, rounding of the
    logits alone gives a relative error of 1e-5.
    """
    shutil.copytree(source, target)
    train = target / "train.tsv"
    rows = train.read_text().splitlines()[1:6]
    flipped = [f"{1 - int(row[0])}{row[1:]}\n" for row in rows]
    train.write_text(train.read_text() + "".join(flipped))
    return target


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    data_dir = write_contradictory_data(tiny.folder / "mrpc", folder / "mrpc")
    flags = {**tiny.flags, **FLAGS, "task_name": "mrpc", "data_dir": data_dir}
    runs = Runs("run_classifier", tiny, folder, **flags)
    runs.run(runs.make_command("one_device"))
    return runs


def assert_matches_one_device(runs, name, workers=1):
    runs.assert_same_steps(name, "one_device", workers)
    assert runs.eval_metrics(name) == pytest.approx(runs.eval_metrics("one_device"), rel=1e-5)
    actual, expected = (
        np.loadtxt(runs.folder / run / "test_results.tsv") for run in (name, "one_device")
    )
    assert actual.shape == (13, 2)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    # All rows differ, so a wrong order would be detected.
    assert len(np.unique(expected[:, 0].round(5))) == 13


# More replicas are slow on few cores.
@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_mirrored_devices_match_one_device(runs, devices):
    name = f"mirrored{devices}"
    runs.run(runs.make_command(name, devices, distribution_strategy="mirrored"))
    assert_matches_one_device(runs, name)


@pytest.mark.slow  # test_distributed_scripts.py also has two workers
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_match_one_device(runs, workers):
    name = f"workers{workers}"
    process = runs.run(runs.make_launch_command(name, workers))
    assert_matches_one_device(runs, name, workers)
    # Only one process logs and writes.
    assert process.stdout.count("Evaluation of 11 examples") == 1
    assert len(list((runs.folder / name).glob("events.out.tfevents.*"))) == 1


@pytest.mark.slow
def test_uneven_replica_batches_match_one_device(runs):
    changes = {"train_batch_size": 10, "num_train_epochs": 3, "do_predict": False}
    runs.run(runs.make_command("ten", **changes))
    runs.run(runs.make_command("ten_on_four", 4, distribution_strategy="mirrored", **changes))
    np.testing.assert_allclose(
        runs.step_metrics("ten_on_four"), runs.step_metrics("ten"), rtol=1e-4
    )


@pytest.mark.slow
def test_combined_options_match_the_plain_run(runs):
    changes = {"num_train_epochs": 5, "do_predict": False}
    runs.run(runs.make_command("plain", **changes))
    flags = {"gradient_accumulation_steps": 3, "recompute_layers": True, "jit_compile": "true"}
    flags |= {"distribution_strategy": "mirrored", **changes}
    runs.run(runs.make_command("combined", 2, **flags))
    expected, actual = runs.step_metrics("plain"), runs.step_metrics("combined")
    assert len(expected) == 9
    np.testing.assert_allclose(actual[:, 0], expected[:, 0], rtol=1e-5)


@pytest.mark.slow
def test_per_replica_clipping_changes_training(runs):
    """As in the original on TPUs, the norm of the sum may reach the number of replicas."""
    flags = {"gradient_clip_scope": "replica", "distribution_strategy": "mirrored"}
    runs.run(runs.make_command("replica", 2, **flags))
    losses, norms = runs.step_metrics("replica").T
    one_device_losses = runs.step_metrics("one_device")[:, 0]
    # The first losses have the same weights; later ones follow different updates.
    assert losses[0] == pytest.approx(one_device_losses[0], rel=1e-5)
    assert np.abs(losses - one_device_losses).max() > 1e-4 * one_device_losses[0]
    assert norms.max() <= 2.0 + 1e-5


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_signal_saves_and_sets_the_exit_code(runs, number, code):
    name = f"signaled{number}"
    command = runs.make_command(name, num_train_epochs=30000)
    process = subprocess.Popen(command, **PROCESS, stderr=subprocess.PIPE)
    while not (runs.folder / f"{name}.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == code, errors
    assert "finishing the current step and saving" in errors
    assert "Traceback" not in errors
    assert 0 < checkpoint.step_of(checkpoint.latest(str(runs.folder / name))) < 57500


def start_two_workers(command):
    """Starts a job of two workers; returns it and the process ids of the workers."""
    job = subprocess.Popen(command, **PROCESS, stdout=subprocess.PIPE, bufsize=1)
    return job, [int(next(job.stdout).split("process ")[1].split(",")[0]) for _ in range(2)]


@pytest.mark.slow
def test_job_with_a_killed_worker_exits_and_resumes(runs):
    changes = {"num_train_epochs": 783, "save_checkpoints_steps": 100, "do_predict": False}
    runs.run(runs.make_launch_command("uninterrupted", 2, **changes))
    command = runs.make_launch_command("killed", 2, **changes)
    job, pids = start_two_workers(command)
    while len(checkpoint.names_in(str(runs.folder / "killed"))) < 3:
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(pids[1], 9)
    kill_time = time.monotonic()
    output = job.stdout.read()
    assert job.wait() == 75, output
    assert time.monotonic() - kill_time < 120
    assert "Another worker was lost" in output
    assert "Traceback" not in output
    process = runs.run(command)
    assert "Resuming from" in process.stdout
    expected, actual = (runs.read_tensors(name) for name in ("uninterrupted", "killed"))
    assert expected["global_step"] == actual["global_step"] == 1500
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


@pytest.mark.slow
def test_worker_with_different_flags_is_named(runs):
    script = '[[ $TF_CONFIG == *\'"index": 1\'* ]] && extra=--random_seed=7; exec "$@" $extra'
    launch, workers, *command = runs.make_launch_command("different_flags", 2)[1:]
    command = [sys.executable, launch, workers, "bash", "-c", script, "bash", *command]
    process = runs.run(command, code=1)
    assert "Workers 1 and 0 differ in the flags" in process.stdout + process.stderr


def test_first_value_that_differs_from_the_chiefs_is_named(monkeypatch):
    chief = {"flags": "a", "step to resume from (--output_dir)": 4, "number of steps": 9}
    worker = dataclasses.replace(open_devices(DeviceOptions()), worker=1, workers=2)
    sent = []

    def from_chief(self, numbers):
        sent.append(numbers)
        return [zlib.crc32(b"a"), 4, 9]

    monkeypatch.setattr(Devices, "from_chief", from_chief)
    worker.require_agreement(chief)
    with pytest.raises(UserError, match="Workers 1 and 0 differ in the flags"):
        worker.require_agreement({**chief, "flags": "b", "number of steps": 8})
    message = r"1 and 0 differ in the step to resume from \(--output_dir\): 2 and 4"
    with pytest.raises(UserError, match=message):
        worker.require_agreement({**chief, "step to resume from (--output_dir)": 2})
    assert len(sent) == 3


@pytest.mark.slow
def test_signaled_worker_stops_and_saves_the_job(runs):
    command = runs.make_launch_command("signaled", 2, num_train_epochs=783)
    job, pids = start_two_workers(command)
    while not (runs.folder / "signaled.jsonl").exists():
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(pids[1], 15)
    output = job.stdout.read()
    assert job.wait() == 143, output
    step = checkpoint.step_of(checkpoint.latest(str(runs.folder / "signaled")))
    assert 0 < step < 1500


def cluster(index=0, **jobs):
    """Returns the TF_CONFIG of a worker."""
    return json.dumps({"cluster": jobs, "task": {"type": "worker", "index": index}})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cluster": {"worker": [1, 2]}}',
        '{"cluster": {"worker": ["a:99999", "b:1"]}}',
        '{"cluster": {"worker": "a:1"}}',
        '{"cluster": {"worker": ["a:1", "a:1"]}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
    ],
)
def test_invalid_tf_config_is_rejected(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG must list the jobs chief"):
        open_devices(DeviceOptions())


def test_one_device_rejects_multi_worker_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", cluster(index=1, chief=["a:1"], worker=["b:1", "c:1"]))
    with pytest.raises(UserError, match="names 3 workers, but this runs in one process"):
        open_devices(DeviceOptions(distribution_strategy="one_device"))
    assert read_cluster()[1] == 2
    # A script in one process does not wait for workers.
    monkeypatch.setenv("TF_CONFIG", cluster(worker=["a:1", "b:1"]))
    with pytest.raises(UserError, match="TF_CONFIG names 2 workers, but this runs in one process"):
        open_devices(DeviceOptions(), one_process=True)


def test_single_worker_cluster_uses_one_device(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", cluster(worker=["a:1"]))
    assert open_devices(DeviceOptions()).kind == "one_device"


def test_missing_tpu_raises_user_error():
    code = "from bert_tf import options, training\n"
    code += "training.open_devices(options.DeviceOptions(use_tpu=True))"
    process = subprocess.run([sys.executable, "-c", code], **PROCESS, capture_output=True)
    assert "UserError: Cannot initialize --tpu_name=local" in process.stderr


def _run_launcher(workers, script, *flags):
    command = [sys.executable, str(LAUNCHER), f"--workers={workers}", *flags, "bash", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        # The first failure counts, not those that it causes in other workers. Worker 0 waits until
        # the launcher knows of the failure: until then, `kill -0` finds worker 1.
        (
            "[[ $TF_CONFIG == *'\"index\": 1'* ]] && echo $$ > pid && exit 1; "
            "until [[ -s pid ]]; do sleep 0.1; done; "
            "while kill -0 $(<pid) 2> /dev/null; do sleep 0.1; done; exit 75",
            1,
        ),
        ("[[ $TF_CONFIG == *'\"index\": 0'* ]] && kill -9 $$; sleep 2; exit 75", 75),
    ],
)
def test_launcher_returns_the_first_failing_exit_code(script, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _run_launcher(2, script).returncode == code


def test_launcher_only_restarts_after_a_lost_worker(tmp_path):
    script = f"echo x >> {tmp_path}/attempts; exit 75"
    assert _run_launcher(1, script, "--restarts=2").returncode == 75
    assert (tmp_path / "attempts").read_text().count("x") == 3
    assert _run_launcher(1, script.replace("75", "1"), "--restarts=2").returncode == 1
    assert (tmp_path / "attempts").read_text().count("x") == 4


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_signals_end_the_connection_to_another_program(number):
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("", 0)) as free:
        ports = [server.getsockname()[1] for server in (free, other)]
        free.close()
        config = cluster(worker=[f"127.0.0.1:{port}" for port in ports])
        code = "import logging; from bert_tf import options, training\n"
        code += "logging.basicConfig(level='INFO'); training.devices._CONNECT_SECONDS = 9\n"
        code += "training.open_devices(options.DeviceOptions())"
        settings = PROCESS | {"env": ENVIRONMENT | {"TF_CONFIG": config}}
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(command, **settings, stderr=subprocess.PIPE)
        while "Waiting until TensorFlow connects" not in next(process.stderr):
            pass
        if number == signal.SIGINT:
            process.send_signal(number)
        process.stderr.read()
        assert process.wait() == -number
