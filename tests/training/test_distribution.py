"""Several devices and several processes give what one device gives.

Every run is a process of its own: devices are split, and workers connected, before TensorFlow does
anything else. The CPU stands for all kinds of devices.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_tf import checkpoint
from bert_tf.errors import UserError
from bert_tf.training import choose_devices, strategy
from tests.oracle import ROOT

LAUNCHER = ROOT / "examples" / "multi_worker" / "launch.py"
# 18 training rows in batches of 12: batches cross the border of an epoch. 11 and 13 rows to
# evaluate and predict, in batches of 8.
FLAGS = {
    "train_batch_size": 12,
    "num_train_epochs": 34,
    "learning_rate": 8e-4,
    "do_train": True,
    "do_eval": True,
    "do_predict": True,
}


class Runs:
    """Runs of the same training into folders by name."""

    def __init__(self, tiny, folder):
        settings = {**tiny.config.to_dict()}
        settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (folder / "no_dropout.json").write_text(json.dumps(settings))
        self.folder = folder
        self.flags = {
            **tiny.flags,
            **FLAGS,
            "task_name": "mrpc",
            "data_dir": tiny.folder / "mrpc",
            "bert_config_file": folder / "no_dropout.json",
            "init_checkpoint": tiny.checkpoint,
        }

    def command(self, name, logical_cpus=1, **changes):
        flags = {**self.flags, "output_dir": self.folder / name, **changes}
        python = [sys.executable, "-m", "tests.training.driver", str(logical_cpus)]
        figures = str(self.folder / f"{name}.jsonl")
        return [*python, figures, *(f"--{flag}={value}" for flag, value in flags.items())]

    def launch(self, name, workers, **changes):
        return [
            *(sys.executable, str(LAUNCHER), f"--workers={workers}"),
            *self.command(name, distribution_strategy="multi_worker", **changes),
        ]

    def run(self, command, code=0):
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def losses(self, name):
        lines = (self.folder / f"{name}.jsonl").read_text().splitlines()
        # Several workers write to the same file: each step stands there once for each of them.
        return [json.loads(line)["loss"] for line in lines]

    def results(self, name):
        out = self.folder / name
        pairs = [line.split(" = ") for line in (out / "eval_results.txt").read_text().splitlines()]
        return {key: float(value) for key, value in pairs}, np.loadtxt(out / "test_results.tsv")

    def tensors(self, name):
        prefix = checkpoint.latest(str(self.folder / name))
        return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def environment():
    return {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    runs = Runs(tiny, tmp_path_factory.mktemp("runs"))
    runs.run(runs.command("one"))
    return runs


def assert_equal_to_one_device(runs, name, workers=1):
    one, other = runs.losses("one"), runs.losses(name)[::workers]
    assert len(one) == len(other) == 51
    np.testing.assert_allclose(other, one, rtol=1e-5)
    assert max(one) > 1.01 * min(one)
    (metrics, predictions), (expected, reference) = runs.results(name), runs.results("one")
    assert metrics == pytest.approx(expected, rel=1e-5)
    assert predictions.shape == (13, 2)
    np.testing.assert_allclose(predictions, reference, atol=1e-5)
    # Rows differ, so that another order would show.
    assert len(np.unique(reference[:, 0].round(5))) == 13


@pytest.mark.parametrize("devices", [2, 4])
def test_mirrored_devices_equal_one(runs, devices):
    name = f"mirrored{devices}"
    runs.run(runs.command(name, devices, distribution_strategy="mirrored"))
    assert_equal_to_one_device(runs, name)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_equal_one_process(runs, workers):
    name = f"workers{workers}"
    done = runs.run(runs.launch(name, workers))
    assert_equal_to_one_device(runs, name, workers)
    # One process speaks and writes.
    assert done.stdout.count("Evaluation of 11 examples") == 1
    assert len(list((runs.folder / name).glob("events.out.tfevents.*"))) == 1


def test_parts_of_different_size_equal_one_device(runs):
    # 10 rows on 4 devices, and a memory of three pieces each on 2.
    for name, cpus, size, pieces in (("of10", 1, 10, 1), ("of10on4", 4, 10, 1)):
        strategy = "one_device" if cpus == 1 else "mirrored"
        changes = {"train_batch_size": size, "num_train_epochs": 3}
        changes |= {"distribution_strategy": strategy, "gradient_accumulation_steps": pieces}
        runs.run(runs.command(name, cpus, **changes))
    np.testing.assert_allclose(runs.losses("of10on4"), runs.losses("of10"), rtol=1e-5)


def test_everything_at_once_runs_on_two_devices(runs):
    flags = {"gradient_accumulation_steps": 3, "recompute_layers": True, "jit_compile": True}
    flags |= {"num_train_epochs": 3, "distribution_strategy": "mirrored"}
    runs.run(runs.command("all", 2, **{**flags, "jit_compile": "true"}))
    np.testing.assert_allclose(runs.losses("all"), runs.losses("one")[: 18 * 3 // 12], rtol=0.02)


@pytest.mark.slow
def test_a_killed_worker_ends_the_job_and_the_same_command_finishes_it(runs):
    changes = {"num_train_epochs": 1000, "save_checkpoints_steps": 100, "do_predict": False}
    runs.run(runs.launch("undisturbed", 2, **changes))
    command = runs.launch("killed", 2, **changes)
    job = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, bufsize=1
    )
    pids = [int(next(job.stdout).split("process ")[1].split(",")[0]) for _ in range(2)]
    while len(checkpoint.names_in(str(runs.folder / "killed"))) < 3:
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(pids[1], 9)
    killed = time.monotonic()
    output = job.stdout.read()
    assert job.wait() == 75, output
    assert time.monotonic() - killed < 120
    assert "Another worker is gone" in output
    assert "Traceback" not in output
    done = runs.run(command)
    assert "Going on from" in done.stdout
    ends = [runs.tensors(name) for name in ("undisturbed", "killed")]
    assert ends[0]["global_step"] == ends[1]["global_step"] == 1500
    for name, value in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], value, err_msg=name)


@pytest.mark.slow
def test_a_worker_that_is_told_to_end_ends_all_with_a_checkpoint(runs):
    command = runs.launch("told", 2, num_train_epochs=1000)
    job = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, bufsize=1
    )
    pids = [int(next(job.stdout).split("process ")[1].split(",")[0]) for _ in range(2)]
    while not (runs.folder / "told.jsonl").exists():
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(pids[1], 15)
    output = job.stdout.read()
    assert job.wait() == 143, output
    step = checkpoint.step_of(checkpoint.latest(str(runs.folder / "told")))
    assert 0 < step < 1500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG cannot be read"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}', "cannot be read"),
        (
            '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
            "may have the jobs chief and worker",
        ),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
            "there is no worker 2",
        ),
    ],
)
def test_tf_config_that_is_not_right(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=message):
        choose_devices()


def test_one_process_refuses_the_tf_config_of_several(monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UserError, match="names 3 workers, but --distribution_strategy=one_device"):
        choose_devices("one_device")
    assert strategy._cluster().worker == 2


def test_a_cluster_of_one_is_one_process(monkeypatch):
    config = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert choose_devices().kind == "one_device"


def test_no_tpu_is_an_error_in_one_line():
    code = "from bert_tf.training import choose_devices; choose_devices(use_tpu=True)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert "UserError: No TPU could be started at local (--tpu_name)" in done.stderr
