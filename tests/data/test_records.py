"""TFRecord files: comparison with the original and protobuf, schema, parsing, and file errors."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.data.records import count_records, encode_examples, make_parse_fn, write_records
from tests.data import CONVERSIONS
from tests.oracle import golden

IDS = (Feature("id"),)
MIXED = (
    Feature("ids", 3),
    Feature("weights", 2, "float32"),
    Feature("label"),
    Feature("score", (), "float32"),
)
ROW = {"ids": [1, 2, 3], "weights": [0.5, 1.0], "label": 4, "score": -2.5}


def classifier_features(max_seq_length: int) -> tuple[Feature, ...]:
    return (*sequence_features(max_seq_length), Feature("label_ids"), Feature("is_real_example"))


def raw_records(path) -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def id_batches(values) -> list[dict]:
    return [{"id": np.array(values, np.int64)}]


def stack(rows) -> list[dict]:
    return [{name: np.array([row[name] for row in rows]) for name in rows[0]}]


# ---- Against the original's files ----------------------------------------------------------


@pytest.mark.parametrize("name", CONVERSIONS)
def test_records_match_the_original(tmp_path, name):
    original = golden(f"classifier/tfrecord/{name}.tf_record")
    arrays = dict(np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False))
    features = classifier_features(arrays["input_ids"].shape[1])
    count = len(arrays["input_ids"])
    path = str(tmp_path / "ours.tf_record")

    batches = (
        {key: arrays[key][indices] for key in arrays} for indices in np.split(np.arange(count), [1])
    )
    assert write_records(path, features, batches) == count

    # The original's map entries are unordered, so compare sorted serializations.
    ours, theirs = raw_records(path), raw_records(original)
    assert len(ours) == len(theirs) == count
    for our_record, record in zip(ours, theirs, strict=True):
        example = tf.train.Example.FromString(record)
        assert our_record == example.SerializeToString(deterministic=True)
    for file in (path, str(original)):
        parsed = next(iter(read_dataset(file, features, batch_size=count)))
        assert set(parsed) == set(arrays)
        for key, tensor in parsed.items():
            assert tensor.dtype == tf.int32
            np.testing.assert_array_equal(tensor, arrays[key], key)


# ---- Feature schema ------------------------------------------------------------------------


def test_write_parse_round_trip(tmp_path):
    path = str(tmp_path / "mixed.tf_record")
    converted_row = {
        "ids": np.array([[7, -8, 2**31 - 1]]),
        "weights": np.array([[1.0, 0.25]], np.float16),
        "label": [[True]],
        "score": [3],
    }
    assert write_records(path, MIXED, [*stack([ROW]), converted_row]) == 2
    (batch,) = read_dataset(path, MIXED, batch_size=8)
    actual = {key: (tensor.dtype.name, tensor.numpy().tolist()) for key, tensor in batch.items()}
    assert actual == {
        "ids": ("int32", [[1, 2, 3], [7, -8, 2**31 - 1]]),
        "weights": ("float32", [[0.5, 1.0], [1.0, 0.25]]),
        "label": ("int32", [4, 1]),
        "score": ("float32", [-2.5, 3.0]),
    }


def test_writing_is_deterministic(tmp_path):
    paths = [tmp_path / "first.tf_record", tmp_path / "second.tf_record"]
    write_records(str(paths[0]), MIXED, stack([ROW] * 5))
    write_records(str(paths[1]), MIXED[::-1], stack([dict(reversed(ROW.items()))]) * 5)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "features in the batch starting at row 1: ['label']"),
        ({"extra": [1]}, ": ['extra']"),
        ({"ids": [[1, 2]]}, "integers of shape (1, 3) in the batch starting at row 1"),
        ({"label": [[1, 2]]}, "Received: int64 of shape (1, 2)"),
        ({"label": []}, "of shape (0,)"),
        ({"ids": [[1.0, 2.0, 3.0]]}, "Feature 'ids' must be 32-bit integers"),
        ({"score": ["high"]}, "Feature 'score' must be numbers"),
        ({"label": [2**31]}, "Feature 'label' must be 32-bit integers"),
        ({"ids": [[0, -(2**31) - 1, 0]]}, "Feature 'ids' must be 32-bit integers"),
    ],
)
def test_batches_violating_the_schema_are_rejected(tmp_path, change, message):
    path = tmp_path / "mixed.tf_record"
    path.write_bytes(b"previous content")
    (good,) = stack([ROW])
    bad = {key: value for key, value in {**good, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=re.escape(message)):
        write_records(str(path), MIXED, [good, bad])
    assert path.read_bytes() == b"previous content"
    assert os.listdir(tmp_path) == ["mixed.tf_record"]


# ---- Encoding, compared with protobuf ------------------------------------------------------


def serialize_with_protobuf(batch) -> list[bytes]:
    records = []
    for row in range(len(next(iter(batch.values())))):
        record = tf.train.Example()
        for name, values in batch.items():
            feature = record.features.feature[name]
            is_float = values.dtype == np.float32
            value_list = feature.float_list if is_float else feature.int64_list
            numbers = np.atleast_1d(values[row])
            value_list.value.extend(numbers.astype(int if numbers.dtype == bool else numbers.dtype))
        records.append(record.SerializeToString(deterministic=True))
    return records


INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 300),
    st.sampled_from(
        [sign * (1 << 7 * k) + d for k in range(9) for d in (-1, 0) for sign in (1, -1)]
    ),
)
FLOATS = st.floats(width=32, allow_nan=False)


def has_no_prefixes(names):
    """Returns whether no name is a prefix of another, which protobuf 7 would sort differently."""
    return not any(a != b and b.startswith(a) for a in names for b in names)


NAMES = st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=4, unique=True)


@st.composite
def batches(draw):
    rows = draw(st.integers(0, 5))
    batch = {}
    for name in draw(NAMES.filter(has_no_prefixes)):
        shape = draw(st.sampled_from([(rows,), (rows, 1), (rows, 3), (rows, 130)]))
        count = int(np.prod(shape))
        # Repeat a few numbers, since only their encoded sizes matter.
        values, dtype = draw(st.sampled_from([(INTEGERS, np.int64), (FLOATS, np.float32)]))
        numbers = draw(st.lists(values, min_size=1, max_size=7))
        batch[name] = np.resize(np.array(numbers, dtype), count).reshape(shape)
    return batch


@settings(max_examples=150, deadline=None)
@given(batches())
def test_encoding_matches_protobuf(batch):
    assert encode_examples(batch) == serialize_with_protobuf(batch)


def test_batches_of_many_sizes_do_not_retrace(caplog):
    for rows in range(1, 20):
        encode_examples({"a": np.zeros((rows, 20 - rows), np.int32), "b": np.zeros(rows, np.int32)})
    assert "retracing" not in caplog.text


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_, np.uint16])
def test_integer_dtypes(dtype):
    batch = {"a": np.array([[0, 1], [1, 0]], dtype)}
    assert encode_examples(batch) == serialize_with_protobuf(batch)


# ---- Parsing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "features",
    [(Feature("other"),), (Feature("id", 2),), (Feature("id", None, "float32"),)],
    ids=["missing", "different length", "different type"],
)
def test_records_with_a_different_schema_are_rejected(records_path, features):
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(read_dataset(records_path, features, 8))


def test_bad_record_in_a_batch_is_rejected():
    good = tf.train.Example()
    good.features.feature["id"].int64_list.value.append(3)
    serialized = good.SerializeToString()
    assert make_parse_fn(IDS)(tf.constant([serialized] * 2))["id"].numpy().tolist() == [3, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        make_parse_fn(IDS)(tf.constant([serialized, b"no example"]))


# ---- Damaged and missing files -------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 9000])
def test_count_records(tmp_path, count):
    path = str(tmp_path / "some.tf_record")
    assert write_records(path, IDS, id_batches(range(count))) == count
    assert count_records(path) == count


def test_truncated_file_is_rejected(records_path):
    os.truncate(records_path, os.path.getsize(records_path) - 5)
    with pytest.raises(
        UserError, match=re.escape(records_path) + " is not a complete TFRecord file"
    ):
        count_records(records_path)
    with pytest.raises(tf.errors.DataLossError):
        list(read_dataset(records_path, IDS, 8))


def test_missing_files_are_named(tmp_path, records_path):
    missing = str(tmp_path / "missing.tf_record")
    expected = re.escape(f"No such file: {missing}") + r".*has: hundred\.tf_record"
    with pytest.raises(UserError, match=expected):
        read_dataset([records_path, missing], IDS, 8)
    with pytest.raises(UserError, match=expected):
        count_records(missing)
