"""Data creation and pre-training give the same result after kill -9 and a rerun."""

import os
import random
import subprocess
import sys
import time

import pytest

from bert_tf import checkpoint
from tests.conftest import WORDS
from tests.oracle import ROOT
from tests.tasks.pretraining.test_training import assert_same_tensors

pytestmark = pytest.mark.slow

KILLS = 4
DATA = {"max_seq_length": 24, "max_predictions_per_seq": 4}


def start(script, flags) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / script)]
    command += [f"--{name}={value}" for name, value in flags.items()]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(script, flags) -> str:
    process = start(script, flags)
    _, run_log = process.communicate()
    assert process.returncode == 0, run_log
    return run_log


def kill_when(script, flags, should_kill) -> bool:
    """Starts a command, kills it once `should_kill()`, and returns whether it was running."""
    process = start(script, flags)
    while process.poll() is None and not should_kill():
        time.sleep(0.005)
    process.kill()
    process.communicate()
    return process.returncode == -9


@pytest.fixture
def text(tmp_path):
    rng = random.Random(3)
    for name in range(4):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(15_000)]
        documents = ["\n".join(lines[n : n + 5]) for n in range(0, len(lines), 5)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    return tmp_path


@pytest.mark.parametrize("num_workers", [1, 2])
def test_data_creation(tiny, text, num_workers):
    flags = {
        "input_file": f"{text}/*.txt",
        "output_file": f"{text}/undisturbed",
        "vocab_file": tiny.flags["vocab_file"],
        "num_workers": num_workers,
        "shard_mb": 0.05,
        "dupe_factor": 2,
        **DATA,
    }
    finish("create_pretraining_data.py", flags)
    flags["output_file"] = f"{text}/killed"
    parts = text / "killed.parts"

    def count_parts() -> int:
        return len([name for name in os.listdir(parts) if name.endswith(".tfrecord")])

    kills = 0
    for count in range(1, KILLS + 1):
        kills += kill_when(
            "create_pretraining_data.py",
            flags,
            lambda count=count: parts.exists() and count_parts() >= 5 * count,
        )
        assert not (text / "killed").exists()
        assert not (text / "killed.json").exists()
    assert kills == KILLS
    assert "units are already done" in finish("create_pretraining_data.py", flags)
    assert (text / "killed").read_bytes() == (text / "undisturbed").read_bytes()
    assert not parts.exists()


def test_pretraining(tiny, text):
    data = {
        "input_file": f"{text}/0.txt",
        "output_file": f"{text}/records",
        "vocab_file": tiny.flags["vocab_file"],
        "num_workers": 1,
        "dupe_factor": 1,
        **DATA,
    }
    finish("create_pretraining_data.py", data)
    flags = {
        "input_file": f"{text}/records",
        "bert_config_file": tiny.flags["bert_config_file"],
        "do_train": "true",
        "do_eval": "true",
        "num_train_steps": 120,
        "num_warmup_steps": 10,
        "save_checkpoints_steps": 10,
        "learning_rate": 1e-3,
        "train_batch_size": 16,
        "max_eval_steps": 10,
        **DATA,
    }
    finish("run_pretraining.py", {**flags, "output_dir": f"{text}/undisturbed"})
    flags["output_dir"] = f"{text}/killed"

    def latest_step() -> int:
        prefix = checkpoint.latest(flags["output_dir"])
        return checkpoint.step_of(prefix) if prefix else -1

    kills = 0
    for step in (0, 20, 50, 90):
        kills += kill_when("run_pretraining.py", flags, lambda step=step: latest_step() >= step)
    assert kills == 4
    assert "model.ckpt-" in finish("run_pretraining.py", flags)
    results = [(text / name / "eval_results.txt").read_text() for name in ("killed", "undisturbed")]
    assert results[0] == results[1]
    assert_same_tensors(text / "undisturbed", text / "killed", 120)
