"""Rows in memory through a model: every row once, in batches that stay within their bounds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.records import Feature, sequence_features
from bert_tf.modeling import BertModel
from bert_tf.training import RowRunner
from tests.conftest import SIZES

MAX_SEQ_LENGTH = 24
FEATURES = (*sequence_features(MAX_SEQ_LENGTH), Feature("number"))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return BertModel(BertConfig(50, **SIZES))


def rows_of(lengths):
    mask = (np.arange(MAX_SEQ_LENGTH) < np.array(lengths)[:, None]).astype(np.int32)
    ids = np.random.default_rng(0).integers(1, 50, mask.shape).astype(np.int32) * mask
    numbers = np.arange(len(mask), dtype=np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids, "number": numbers}


def runner(model, batch_size=4, features=FEATURES, **kwargs):
    def outputs_fn(outputs, batch):
        return {"pooled": outputs["pooled_output"], "number": batch["number"]}

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    return RowRunner(
        model, outputs_fn, features, strategy=strategy, batch_size=batch_size, **kwargs
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"grow": False},
        {"length_multiple": 8},
        {"fixed_length": MAX_SEQ_LENGTH},
        {"fixed_length": MAX_SEQ_LENGTH, "full_batches": True, "jit_compile": True},
    ],
)
def test_every_row_is_computed_once_as_if_alone(model, kwargs):
    rows = rows_of([3, 24, 2, 2, 9, 17, 24, 5, 3, 2, 11])
    found = {}
    for numbers, outputs in runner(model, **kwargs)(rows):
        assert outputs["number"].tolist() == numbers.tolist()
        found |= dict(zip(numbers.tolist(), outputs["pooled"], strict=True))
    assert sorted(found) == list(range(11))
    for row, values in found.items():
        length = rows["input_mask"][row].sum()
        alone = {name: rows[name][None, row, :length] for name in ("input_ids", "input_mask")}
        np.testing.assert_allclose(values, model(alone)["pooled_output"][0], atol=1e-6)


def shapes(model, lengths, **kwargs):
    found = []
    with_shapes = runner(model, **kwargs)
    step = with_shapes._step

    def watched(batch):
        found.append(tuple(batch["input_ids"].shape))
        return step(batch)

    with_shapes._step = watched
    assert sum(len(numbers) for numbers, _ in with_shapes(rows_of(lengths))) == len(lengths)
    return sorted(found, reverse=True)


def test_batches_of_short_rows_have_more_of_them(model):
    lengths = [2] * 100 + [20] * 6
    # Never more tokens than 4 rows of 24 have.
    assert shapes(model, lengths) == [(48, 2), (48, 2), (4, 20), (4, 20), (2, 2)]
    few = shapes(model, lengths, grow=False)
    assert few == [(4, 20)] * 2 + [(4, 2)] * 24 + [(2, 2)]
    assert shapes(model, [3, 3], length_multiple=8) == [(2, 8)]
    # Longer than the rows it never is.
    assert shapes(model, [23], length_multiple=16) == [(1, 24)]
    fixed = shapes(model, lengths[:5], fixed_length=MAX_SEQ_LENGTH)
    assert fixed == [(4, 24), (1, 24)]
    fixed = shapes(model, lengths[:5], fixed_length=MAX_SEQ_LENGTH, full_batches=True)
    assert fixed == [(4, 24), (4, 24)]


@pytest.mark.parametrize(
    ("kwargs", "expected"), [({}, 5), ({"fixed_length": MAX_SEQ_LENGTH, "full_batches": True}, 8)]
)
def test_equal_rows_are_computed_once(model, kwargs, expected):
    lengths = [5, 24, 5, 3, 24, 5, 5, 9]
    rows = rows_of(lengths)
    rows["number"][:] = 0
    for copy, of in ((2, 0), (6, 0), (4, 1)):
        rows["input_ids"][copy] = rows["input_ids"][of]
    # Nothing but a segment tells this one from the first.
    rows["input_ids"][5] = rows["input_ids"][0]
    rows["segment_ids"][5, 4] = 1
    with_shapes = runner(model, **kwargs)
    step, computed = with_shapes._step, []

    def watched(batch):
        computed.extend(batch["input_ids"].numpy().sum(axis=1).tolist())
        return step(batch)

    with_shapes._step = watched
    found = {}
    for numbers, outputs in with_shapes(rows):
        found |= dict(zip(numbers.tolist(), outputs["pooled"], strict=True))
    assert sorted(found) == list(range(len(lengths)))
    # Full batches are filled up with copies.
    assert len(computed) == expected
    for copy, of in ((2, 0), (6, 0), (4, 1)):
        np.testing.assert_array_equal(found[copy], found[of])
    assert np.abs(found[5] - found[0]).max() > 1e-5


def test_no_rows(model):
    assert list(runner(model)(rows_of(np.zeros(0, int)))) == []


def test_what_fails_in_a_batch_is_raised(model):
    rows = rows_of([3] * 200)
    rows["input_ids"][150] = 1000
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(runner(model)(rows))
