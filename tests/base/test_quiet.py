"""Importing TensorFlow in the scripts."""

import sys

import pytest

from bert_tf.base.quiet import hide_stderr
from tests.processes import run_python

PROGRAM = """
import os, sys
from bert_tf.base.quiet import import_tensorflow
import_tensorflow()
print([name for name in ("sklearn", "scipy", "matplotlib") if name in sys.modules])
print(os.environ["TF_ENABLE_ONEDNN_OPTS"])
import matplotlib.pyplot
print(matplotlib.pyplot.plot is not None)
"""


@pytest.mark.parametrize(("onednn", "level"), [("0", "2"), (None, "1")])
def test_tensorflow_import_skips_optional_modules(onednn, level):
    environment = {"TF_ENABLE_ONEDNN_OPTS": onednn} if onednn else {}
    result = run_python("-c", PROGRAM, TF_CPP_MIN_LOG_LEVEL=level, **environment)
    assert result.returncode == 0, result.stderr
    # Keras' optional imports are skipped, but remain possible later.
    assert result.stdout.splitlines() == ["[]", onednn or "1", "True"]
    assert result.stderr == ""


def test_stderr_may_be_missing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with hide_stderr():
        pass
    with pytest.raises(ValueError, match="from inside"), hide_stderr():
        raise ValueError("from inside")
