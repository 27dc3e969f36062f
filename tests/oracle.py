"""Where the tests find what the original release computed, and the texts they measure with.

A small part of the golden data lies in `tests/goldens`; all of it, and the public data sets, may
lie beside the checkout in `../shared`. A test whose data is in neither place is skipped.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_OWN = ROOT / "tests" / "goldens"
_SHARED = ROOT.parent / "shared"


def golden(relative: str) -> Path:
    """The file or folder of golden data with this path, or a skipped test."""
    return _first(relative, _OWN, _SHARED / "golden")


def data(relative: str) -> Path:
    """The file or folder of the public data sets with this path, or a skipped test."""
    return _first(relative, _SHARED / "data")


def _first(relative: str, *folders: Path) -> Path:
    for folder in folders:
        if (folder / relative).exists():
            return folder / relative
    places = " nor in ".join(f"{folder.parent.name}/{folder.name}" for folder in folders)
    pytest.skip(f"{relative} is not in {places}")
