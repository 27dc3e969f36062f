"""Runs the same training on one device, several devices and several processes.

Every run is a separate process: devices must be split and workers connected before TensorFlow does
anything else. The CPU represents all kinds of devices.
"""

import json
import os
import subprocess
import sys

import numpy as np

from bert_tf import checkpoint
from tests.oracle import ROOT

LAUNCHER = ROOT / "examples" / "multi_worker" / "launch.py"


class Runs:
    """Runs of a script, each in a named folder.

    Args:
        script: name of the function in `bert_tf.scripts`.
        tiny: the model; runs use its configuration without dropout.
        folder: parent folder of the runs.
        flags: flags of the script, in addition to configuration and checkpoint.
    """

    def __init__(self, script, tiny, folder, **flags):
        settings = {**tiny.config.to_dict()}
        settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (folder / "no_dropout.json").write_text(json.dumps(settings))
        self.script = script
        self.folder = folder
        self.flags = {
            **flags,
            "bert_config_file": folder / "no_dropout.json",
            "init_checkpoint": tiny.checkpoint,
        }

    def command(self, name, logical_cpus=1, **changes):
        flags = {**self.flags, "output_dir": self.folder / name, **changes}
        python = [sys.executable, "-m", "tests.training.driver", self.script, str(logical_cpus)]
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

    def figures(self, name, workers=1):
        """Returns the loss and gradient norm of each step."""
        lines = (self.folder / f"{name}.jsonl").read_text().splitlines()
        # All workers write to the same file, so each step occurs once per worker.
        steps = [json.loads(line) for line in lines[::workers]]
        return np.array([[step["loss"], step["gradient_norm"]] for step in steps])

    def metrics(self, name):
        lines = (self.folder / name / "eval_results.txt").read_text().splitlines()
        return {key: float(value) for key, value in (line.split(" = ") for line in lines)}

    def tensors(self, name):
        prefix = checkpoint.latest(str(self.folder / name))
        return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))

    def assert_same_steps(self, name, reference, workers=1):
        """Asserts equal losses (within 1e-5) and gradient norms for 51 steps."""
        one, other = self.figures(reference), self.figures(name, workers)
        assert one.shape == other.shape == (51, 2)
        np.testing.assert_allclose(other[:, 0], one[:, 0], rtol=1e-5)
        np.testing.assert_allclose(other[:, 1], one[:, 1], rtol=1e-3)
        losses, norms = one.T
        assert losses.max() > 1.01 * losses.min()
        # Gradients are clipped, so clipping per device would give different norms.
        assert norms.max() > 1.0


def environment():
    return {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
