"""Encoding of `tf.train.Example`, compared with protobuf."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.example_encoding import encode_examples


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


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_, np.uint16])
def test_integer_dtypes(dtype):
    batch = {"a": np.array([[0, 1], [1, 0]], dtype)}
    assert encode_examples(batch) == serialize_with_protobuf(batch)
