"""Runs Python in a process of its own."""

import os
import subprocess
import sys

from tests.oracle import ROOT


def run_python(*arguments, cwd=ROOT, **environment) -> subprocess.CompletedProcess:
    """Returns the exit code, the standard output and the standard error, as text."""
    command, env = [sys.executable, *map(str, arguments)], {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
