"""Runs a script on two logical devices."""

import dataclasses
import subprocess
import sys

from tests.oracle import ROOT

_CODE = """
import sys
from bert_tf import scripts
from tests.training.logical_devices import split_device

split_device(2)
getattr(scripts, sys.argv.pop(1))()
"""


def run_on_two_devices(script, options):
    """Runs in a subprocess, as devices must be split before TensorFlow is initialized.

    Args:
        script: name of its function in `bert_tf.scripts`.
        options: options of the script.
    """
    mirrored_options = dataclasses.replace(options, distribution_strategy="mirrored")
    arguments = [
        f"--{field.name}={getattr(mirrored_options, field.name)}"
        for field in dataclasses.fields(mirrored_options)
        if getattr(mirrored_options, field.name) != field.default
    ]
    command = [sys.executable, "-c", _CODE, script, *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
