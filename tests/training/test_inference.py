"""Inference: batching, deduplication and reading of records."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.records import write_records
from bert_tf.modeling import BertModel
from bert_tf.modeling.inputs import flatten_texts
from bert_tf.training import Devices, Inference
from tests.conftest import SIZES
from tests.training.helpers import ONE_DEVICE

MAX_SEQ_LENGTH = 24
FEATURES = (*sequence_features(MAX_SEQ_LENGTH), Feature("number"))
FIXED = {"fixed_shapes": True}
COMPILED = {"fixed_shapes": True, "jit_compile": True}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return BertModel(BertConfig(50, **SIZES))


def make_rows(lengths):
    """Returns numbered rows with random ids."""
    mask = (np.arange(MAX_SEQ_LENGTH) < np.array(lengths)[:, None]).astype(np.int32)
    ids = np.random.default_rng(0).integers(1, 50, mask.shape).astype(np.int32) * mask
    numbers = np.arange(len(mask), dtype=np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids, "number": numbers}


def make_inference(model, grow=True, **devices):
    def fetch(outputs, batch):
        return {"pooled": outputs["pooled_output"], "number": batch["number"]}

    return Inference(model, fetch, FEATURES, dataclasses.replace(ONE_DEVICE, **devices), 4, grow)


@pytest.mark.parametrize("kwargs", [{}, {"grow": False}, FIXED, COMPILED])
def test_each_row_is_predicted_once(model, kwargs):
    rows = make_rows([3, 24, 2, 2, 9, 17, 24, 5, 3, 2, 11])
    inference = make_inference(model, **kwargs)
    indices = [index for batch, _ in inference.batches(rows) for index in batch]
    assert sorted(indices) == list(range(11))
    actual = inference.predict(rows)
    assert actual["number"].tolist() == list(range(11))
    for row, values in enumerate(actual["pooled"]):
        length = rows["input_mask"][row].sum()
        single_row = {name: rows[name][None, row, :length] for name in ("input_ids", "input_mask")}
        np.testing.assert_allclose(values, model(single_row)["pooled_output"][0], atol=1e-6)


def predict_and_record(inference, rows):
    """Returns the batches passed to the model, and the outputs of all rows."""
    batches, step = [], inference.step

    def record(batch):
        batches.append({name: value.numpy() for name, value in batch.items()})
        return step(batch)

    inference.step = record
    record.structured_outputs = step.structured_outputs
    return batches, inference.predict(rows)


def batch_shapes(model, lengths, **kwargs):
    batches, _ = predict_and_record(make_inference(model, **kwargs), make_rows(lengths))
    return sorted((batch["input_ids"].shape for batch in batches), reverse=True)


def test_batch_size_grows_for_short_rows(model, monkeypatch):
    monkeypatch.setattr(Devices, "has_gpus", False)  # on GPUs, lengths are multiples of 8
    lengths = [2] * 100 + [20] * 6
    # A batch has at most as many tokens as 4 rows of 24.
    assert batch_shapes(model, lengths) == [(48, 2), (48, 2), (4, 20), (4, 20), (2, 2)]
    without_growth = batch_shapes(model, lengths, grow=False)
    assert without_growth == [(4, 20)] * 2 + [(4, 2)] * 24 + [(2, 2)]
    assert batch_shapes(model, lengths[:5], **FIXED) == [(4, 24), (1, 24)]
    assert batch_shapes(model, lengths[:5], **COMPILED) == [(4, 24), (4, 24)]


@pytest.mark.parametrize(("kwargs", "expected"), [({}, 5), (COMPILED, 8)])
def test_duplicate_rows_are_computed_once(model, kwargs, expected):
    rows = make_rows([5, 24, 5, 3, 24, 5, 5, 9])
    rows["number"][:] = 0
    for copy, original in ((2, 0), (6, 0), (4, 1)):
        rows["input_ids"][copy] = rows["input_ids"][original]
    # Row 5 differs from row 0 only in its segment ids.
    rows["input_ids"][5] = rows["input_ids"][0]
    rows["segment_ids"][5, 4] = 1
    batches, actual = predict_and_record(make_inference(model, **kwargs), rows)
    # With XLA, incomplete batches are filled with duplicates.
    assert sum(len(batch["input_ids"]) for batch in batches) == expected
    for copy, original in ((2, 0), (6, 0), (4, 1)):
        np.testing.assert_array_equal(actual["pooled"][copy], actual["pooled"][original])
    assert np.abs(actual["pooled"][5] - actual["pooled"][0]).max() > 1e-5


def test_empty_input_gives_empty_outputs(model):
    actual = make_inference(model).predict(make_rows(np.zeros(0, int)))
    assert actual["pooled"].shape == (0, SIZES["hidden_size"])
    assert actual["pooled"].dtype == np.float32
    assert actual["number"].shape == (0,)


def test_invalid_ids_raise(model):
    rows = make_rows([3] * 200)
    rows["input_ids"][150] = 1000
    with pytest.raises(tf.errors.InvalidArgumentError):
        make_inference(model).predict(rows)


def test_records_are_read_in_chunks_and_repeat(model, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.inference.row_batches._CHUNK_ROWS", 4)
    rows, path = make_rows([5, 24, 7, 3, 24, 9, 4]), str(tmp_path / "x.tf_record")
    write_records(path, FEATURES, [rows])
    inference = make_inference(model)
    expected = inference.predict(rows)
    for count in (0, 3, 7, 17):
        actual = inference.predict_records(path, count, "eval")
        assert actual["number"].tolist() == [number % 7 for number in range(count)]
        np.testing.assert_allclose(
            actual["pooled"], np.tile(expected["pooled"], (3, 1))[:count], atol=1e-6
        )
    write_records(path, FEATURES, [])
    with pytest.raises(UserError, match="contains no records"):
        inference.predict_records(path, 1, "eval")


def test_multiple_choice_rows_are_trimmed(model):
    features = sequence_features(MAX_SEQ_LENGTH, texts_per_row=3)
    flat = make_rows([3, 9, 2, 5, 4, 1])
    rows = {feature.name: flat[feature.name].reshape(2, 3, -1) for feature in features}

    class MultipleChoiceModel(keras.Model):
        def call(self, inputs, training=None):
            pooled = model(flatten_texts(inputs))["pooled_output"]
            return keras.ops.reshape(pooled, (-1, 3, SIZES["hidden_size"]))

    fetch = lambda outputs, _: {"pooled": outputs}  # noqa: E731
    inference = Inference(MultipleChoiceModel(), fetch, features, ONE_DEVICE, 4)
    actual = inference.predict(rows)["pooled"]
    assert actual.shape == (2, 3, SIZES["hidden_size"])
    single_text = {name: flat[name][4:5, :4] for name in rows}
    np.testing.assert_allclose(actual[1, 1], model(single_text)["pooled_output"][0], atol=1e-6)


def test_texts_of_different_kinds_keep_their_lengths():
    """Each kind of text has its own `max_seq_length` under fixed shapes."""

    class Sums(keras.Model):
        def call(self, inputs, training=None):
            return keras.ops.sum(inputs["input_ids"], -1) + keras.ops.sum(
                inputs["passages/input_ids"], (-1, -2)
            )

    features = (*sequence_features(4), *sequence_features(6, 2, prefix="passages/"))
    rows = {feature.name: np.ones((3, *feature.shape), np.int32) for feature in features}
    devices = dataclasses.replace(ONE_DEVICE, fixed_shapes=True)
    inference = Inference(Sums(), lambda x, _: {"sum": x}, features, devices, 2)
    assert inference.predict(rows)["sum"].tolist() == [4 + 2 * 6] * 3
