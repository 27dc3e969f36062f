"""Hashes of training inputs, and the report of rows to evaluate on that are training rows."""

import logging

import numpy as np
import pytest

from bert_tf.data.feature_specs import sequence_features
from bert_tf.data.records import write_records
from bert_tf.finetuning.training_inputs import (
    HASHES,
    hash_inputs,
    read_hashes,
    report_shared_rows,
    write_hashes,
)


def hash_rows(tmp_path, input_ids):
    input_ids = np.asarray(input_ids)
    features = sequence_features(
        input_ids.shape[-1], input_ids.shape[1] if input_ids.ndim == 3 else None
    )
    path = str(tmp_path / "records")
    write_records(path, features, [{feature.name: input_ids for feature in features}])
    return hash_inputs(path, features)


def test_hash_depends_on_ids_and_order_but_not_on_padding(tmp_path):
    short = hash_rows(tmp_path, [[2, 7, 8, 3], [2, 8, 7, 3], [2, 7, 3, 0]])
    long = hash_rows(tmp_path, [[2, 7, 8, 3, 0, 0], [2, 8, 7, 3, 0, 0], [2, 7, 3, 0, 0, 0]])
    assert short.tolist() == long.tolist()
    assert len({*short.tolist()}) == 3


def test_hash_of_multiple_choice_rows_depends_on_the_order_of_endings(tmp_path):
    hashes = hash_rows(tmp_path, [[[2, 7], [2, 8]], [[2, 8], [2, 7]], [[2, 7], [2, 8]]])
    assert hashes[0] == hashes[2] != hashes[1]


def test_different_rows_have_different_hashes(tmp_path):
    rows = np.random.default_rng(0).integers(0, 3, [5000, 12])
    unique = np.unique(rows, axis=0)
    assert len({*hash_rows(tmp_path, unique).tolist()}) == len(unique)


def test_hashes_are_found_in_the_folder_and_from_best(tmp_path):
    hashes = np.array([3, 2**64 - 1], np.uint64)
    write_hashes(str(tmp_path), hashes)
    assert read_hashes(str(tmp_path)).tolist() == hashes.tolist()
    assert read_hashes(str(tmp_path / "best")).tolist() == hashes.tolist()
    assert read_hashes(str(tmp_path / "other")).tolist() == []


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY"])
def test_damaged_hashes_are_ignored(tmp_path, content):
    (tmp_path / HASHES).write_bytes(content)
    assert read_hashes(str(tmp_path)).tolist() == []


@pytest.mark.parametrize(("num_shared", "level"), [(1, None), (2, "INFO"), (16, "WARNING")])
def test_report(caplog, num_shared, level):
    eval_hashes = np.arange(100, dtype=np.uint64)
    with caplog.at_level(logging.INFO, logger="bert_tf"):
        report_shared_rows(eval_hashes, eval_hashes[:num_shared])
    expected = f"{num_shared} of 100 evaluation rows ({num_shared}.0%) were also used"
    assert [(r.levelname, r.getMessage()[: len(expected)]) for r in caplog.records] == (
        [(level, expected)] if level else []
    )
