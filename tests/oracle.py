"""Where tests find the original's results (goldens) and public data.

The goldens are part of the repository. Public data sets and models are not: they may lie in
`../shared/data`, beside the checkout. Only tests marked `shared` may read them, and these skip
where the data is absent.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_GOLDENS = ROOT / "tests" / "goldens"
_PUBLIC = ROOT.parent / "shared" / "data"

# Whether the running test has the marker; `conftest.py` sets it before each test.
marked_shared = False


def golden(relative: str) -> Path:
    """The path of a file or folder that the original computed or read."""
    return _GOLDENS / relative


def data(relative: str) -> Path:
    """The path of a public data set or model; skips the running test where it is absent.

    Raises:
        RuntimeError: if the running test is not marked `shared`, or none is running.
    """
    if not marked_shared:
        raise RuntimeError(f"tests that read {relative} need the marker `shared`")
    path = _PUBLIC / relative
    if not path.exists():
        pytest.skip(f"public data {relative} is not in ../shared/data")
    return path


def vocabulary(name: str) -> Path:
    """A vocabulary of the release; the multilingual one is public data, the others are goldens."""
    if name == "multilingual":
        return data("vocab/multi_cased_vocab.txt")
    return golden(f"vocab/{name}.txt")
