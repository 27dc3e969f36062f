"""Shared fixtures for the data tests."""

import pytest

from bert_tf.data.records import write_records
from tests.data.test_records import IDS, id_batches


@pytest.fixture
def records_path(tmp_path) -> str:
    """A record file with the ids 0 to 99."""
    path = str(tmp_path / "hundred.tf_record")
    write_records(path, IDS, id_batches(range(100)))
    return path
