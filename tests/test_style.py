"""ruff check and ruff format on the whole repository."""

import pytest

from tests.processes import run_python


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_ruff_is_clean(command):
    result = run_python("-m", "ruff", *command, ".")
    assert result.returncode == 0, result.stdout
