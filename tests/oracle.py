"""Paths of golden files (inputs and outputs of the original implementation) and of public data.

Golden files are part of the repository. Public datasets and models are not: they are expected in
`../shared/data`, next to the checkout. Only tests marked `shared` may read them; these tests are
skipped if the data is missing.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_GOLDEN_DIR = ROOT / "tests" / "goldens"
_PUBLIC_DIR = ROOT.parent / "shared" / "data"

# Whether the running test is marked `shared`; set by `conftest.py` before each test.
marked_shared = False


def golden(relative: str) -> Path:
    """Returns the path of a golden file."""
    return _GOLDEN_DIR / relative


def data(relative: str) -> Path:
    """Returns the path of a public dataset or model; skips the running test if it is missing.

    Raises:
        RuntimeError: if the running test is not marked `shared`, or no test is running.
    """
    if not marked_shared:
        raise RuntimeError(f"tests that read {relative} need the marker `shared`")
    path = _PUBLIC_DIR / relative
    if not path.exists():
        pytest.skip(f"public data {relative} is not in ../shared/data")
    return path


def vocabulary(name: str) -> Path:
    """Returns the path of a vocabulary: a golden file, or public data for `multilingual`."""
    if name == "multilingual":
        return data("vocab/multi_cased_vocab.txt")
    return golden(f"vocab/{name}.txt")
