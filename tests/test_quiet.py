"""TensorFlow startup in the scripts."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from bert_tf.quiet import import_tensorflow
import_tensorflow()
print([name for name in ("sklearn", "scipy", "matplotlib") if name in sys.modules])
print(os.environ["TF_ENABLE_ONEDNN_OPTS"])
import matplotlib.pyplot
print(matplotlib.pyplot.plot is not None)
"""


@pytest.mark.parametrize("choice", [None, "0"])
def test_modules_imported_at_tensorflow_startup(choice):
    environment = {**os.environ, **({"TF_ENABLE_ONEDNN_OPTS": choice} if choice else {})}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    # Optional imports of Keras are skipped, but still possible later.
    assert done.stdout.splitlines() == ["[]", choice or "1", "True"]
    assert done.stderr == ""
