"""Runs scripts on one device, several devices and several processes.

Each run is a separate process, because logical devices and workers must be configured before
TensorFlow is initialized. Logical devices, of a GPU or of the CPU, represent all kinds of devices.
"""

import json
import os
import subprocess
import sys

import numpy as np

from bert_tf import checkpoint
from tests.oracle import ROOT

LAUNCHER = ROOT / "examples" / "multi_worker" / "launch.py"
# How to run a program, for `subprocess`.
ENVIRONMENT = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
PROCESS = {"cwd": ROOT, "env": ENVIRONMENT, "text": True}


class Runs:
    """Runs of a script, each in a named folder.

    Args:
        script: name of a function in `bert_tf.scripts`.
        tiny: the model, whose dropout is disabled.
        folder: parent folder of the runs.
        flags: flags of the script, besides configuration and checkpoint.
    """

    def __init__(self, script, tiny, folder, **flags):
        config = {**tiny.config.to_dict()}
        config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (folder / "no_dropout.json").write_text(json.dumps(config))
        self.script = script
        self.folder = folder
        self.flags = {
            **flags,
            "bert_config_file": folder / "no_dropout.json",
            "init_checkpoint": tiny.checkpoint,
        }

    def make_command(self, name, logical_devices=1, **changes):
        """Returns the command for a run on logical devices."""
        flags = {**self.flags, "output_dir": self.folder / name, **changes}
        python = [sys.executable, "-m", "tests.training.driver", self.script]
        python += [str(logical_devices), str(self.folder / f"{name}.jsonl")]
        return [*python, *(f"--{flag}={value}" for flag, value in flags.items())]

    def make_launch_command(self, name, workers, **changes):
        """Returns the command for a run with several worker processes."""
        return [
            *(sys.executable, str(LAUNCHER), f"--workers={workers}"),
            *self.make_command(name, distribution_strategy="multi_worker", **changes),
        ]

    def run(self, command, code=0):
        process = subprocess.run(command, **PROCESS, capture_output=True)
        assert process.returncode == code, process.stdout + process.stderr
        return process

    def step_metrics(self, name, workers=1):
        """Returns the loss and gradient norm of each step, [num_steps, 2]."""
        lines = (self.folder / f"{name}.jsonl").read_text().splitlines()
        # All workers append to the same file, so each step occurs once per worker.
        steps = [json.loads(line) for line in lines[::workers]]
        return np.array([[step["loss"], step["gradient_norm"]] for step in steps])

    def eval_metrics(self, name):
        lines = (self.folder / name / "eval_results.txt").read_text().splitlines()
        return {key: float(value) for key, value in (line.split(" = ") for line in lines)}

    def read_tensors(self, name):
        """Returns all tensors in the last checkpoint."""
        prefix = checkpoint.latest(str(self.folder / name))
        return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))

    def assert_same_steps(self, name, reference, workers=1):
        """Asserts equal losses (within 1e-5) and gradient norms for 51 steps."""
        expected, actual = self.step_metrics(reference), self.step_metrics(name, workers)
        assert expected.shape == actual.shape == (51, 2)
        np.testing.assert_allclose(actual[:, 0], expected[:, 0], rtol=1e-5)
        np.testing.assert_allclose(actual[:, 1], expected[:, 1], rtol=1e-3)
        losses, norms = expected.T
        assert losses.max() > 1.01 * losses.min()
        # Gradients are clipped, so clipping per device would change the norms.
        assert norms.max() > 1.0
