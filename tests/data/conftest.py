"""Shared fixtures for the data tests."""

import pytest

from bert_tf.data.records import write_records
from tests.data.test_records import IDS, numbers


@pytest.fixture
def records_path(tmp_path) -> str:
    """The path of a record file with the numbers from 0 to 99."""
    path = str(tmp_path / "hundred.tf_record")
    write_records(path, IDS, numbers(range(100)))
    return path
