"""Access to public data and golden files."""

import pytest

from tests import oracle


def test_public_data_requires_the_shared_marker():
    with pytest.raises(RuntimeError, match=r"read glue/MRPC need the marker `shared`"):
        oracle.data("glue/MRPC")


def test_missing_public_data_skips_the_test(monkeypatch):
    monkeypatch.setattr(oracle, "marked_shared", True)
    with pytest.raises(pytest.skip.Exception, match=r"glue/none is not in ../shared/data"):
        oracle.data("glue/none")


def test_golden_files_are_small():
    files = [path for path in oracle.golden("").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < 20e6
