"""Paths of the original's results (goldens) and of public data.

The goldens are part of the repository. Public data sets and models are not: they are expected in
`../shared/data`, next to the checkout. Only tests marked `shared` may read them; these tests are
skipped if the data is missing.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_GOLDENS = ROOT / "tests" / "goldens"
_PUBLIC = ROOT.parent / "shared" / "data"

# Whether the running test has the marker; `conftest.py` sets it before each test.
marked_shared = False


def golden(relative: str) -> Path:
    """Returns the path of an input or output of the original."""
    return _GOLDENS / relative


def data(relative: str) -> Path:
    """Returns the path of a public data set or model; skips the running test if it is missing.

    Raises:
        RuntimeError: if the running test is not marked `shared`, or no test is running.
    """
    if not marked_shared:
        raise RuntimeError(f"tests that read {relative} need the marker `shared`")
    path = _PUBLIC / relative
    if not path.exists():
        pytest.skip(f"public data {relative} is not in ../shared/data")
    return path


def vocabulary(name: str) -> Path:
    """Returns a release's vocabulary; the multilingual one is public data, others are goldens."""
    if name == "multilingual":
        return data("vocab/multi_cased_vocab.txt")
    return golden(f"vocab/{name}.txt")
