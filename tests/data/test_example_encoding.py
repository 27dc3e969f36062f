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
            entry = record.features.feature[name]
            kind = entry.float_list if values.dtype == np.float32 else entry.int64_list
            numbers = np.atleast_1d(values[row])
            kind.value.extend(numbers.astype(int if numbers.dtype == bool else numbers.dtype))
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


def no_name_is_a_prefix(names):
    """Whether all protobuf versions sort the names alike; version 7 puts longer names first."""
    return not any(a != b and b.startswith(a) for a in names for b in names)


NAMES = st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=4, unique=True)


@st.composite
def batches(draw):
    rows = draw(st.integers(0, 5))
    batch = {}
    for name in draw(NAMES.filter(no_name_is_a_prefix)):
        shape = draw(st.sampled_from([(rows,), (rows, 1), (rows, 3), (rows, 130)]))
        count = int(np.prod(shape))
        # Draw few numbers and repeat them: only their sizes matter.
        kind, dtype = draw(st.sampled_from([(INTEGERS, np.int64), (FLOATS, np.float32)]))
        numbers = draw(st.lists(kind, min_size=1, max_size=7))
        batch[name] = np.resize(np.array(numbers, dtype), count).reshape(shape)
    return batch


@settings(max_examples=150, deadline=None)
@given(batches())
def test_bytes_match_protobuf(batch):
    assert encode_examples(batch) == serialize_with_protobuf(batch)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_, np.uint16])
def test_all_integer_widths(dtype):
    batch = {"a": np.array([[0, 1], [1, 0]], dtype)}
    assert encode_examples(batch) == serialize_with_protobuf(batch)
