"""Hashes of training texts, and the report of evaluation examples that are training examples."""

import logging

import numpy as np
import pytest

from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.finetuning.records import (
    hash_texts,
    report_shared_examples,
)


def test_hashes_depend_on_each_text_and_their_order():
    items = [("a", "b"), ("b", "a"), ("a b", ""), ("a", "b", ""), ["a", "b"], ("ä", "\ud800")]
    hashes = hash_texts(items).tolist()
    assert hashes[0] == hashes[4]
    assert len({*hashes}) == len(items) - 1


def test_hashes_depend_only_on_the_words():
    a, b, c = hash_texts([("The film",), (" the  FILM!\n",), ("thefilm",)]).tolist()
    assert a == b != c
    assert len({*hash_texts([(":)",), (":(",), ("",)]).tolist()}) == 3


def test_hashes_are_found_in_the_folder_and_from_best(tmp_path):
    hashes = np.array([3, 2**64 - 1], np.uint64)
    RunFolder(str(tmp_path)).write_text_hashes(hashes)
    (tmp_path / "run.json").write_text("{}")
    assert RunFolder(str(tmp_path)).text_hashes().tolist() == hashes.tolist()
    assert RunFolder(str(tmp_path / "best")).text_hashes().tolist() == hashes.tolist()
    assert RunFolder(str(tmp_path / "other")).text_hashes().tolist() == []


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY"])
def test_damaged_hashes_are_ignored(tmp_path, content):
    (tmp_path / "train_texts.npy").write_bytes(content)
    assert RunFolder(str(tmp_path)).text_hashes().tolist() == []


@pytest.mark.parametrize(("num_shared", "level"), [(1, None), (2, "INFO"), (16, "WARNING")])
def test_report(caplog, num_shared, level):
    eval_hashes = np.arange(100, dtype=np.uint64)
    with caplog.at_level(logging.INFO, logger="bert_tf"):
        report_shared_examples(eval_hashes, eval_hashes[:num_shared])
    expected = f"{num_shared} of 100 evaluation examples ({num_shared}.0%) were also used"
    assert [(r.levelname, r.getMessage()[: len(expected)]) for r in caplog.records] == (
        [(level, expected)] if level else []
    )
