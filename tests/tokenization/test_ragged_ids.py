"""`RaggedIds`: indexing, concatenation and spans."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tokenization.ragged_ids import RaggedIds


def as_lists(ids: RaggedIds) -> list[list[int]]:
    return [ids[row].tolist() for row in range(len(ids))]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6), st.data())
def test_indexing_and_concatenation(rows, data):
    ids = RaggedIds.from_lists(rows)
    assert as_lists(ids) == rows
    assert ids.lengths.tolist() == [len(row) for row in rows]
    assert as_lists(RaggedIds.concatenate([ids, ids])) == rows + rows
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    assert as_lists(ids.take(np.array(indices, np.int64))) == [rows[row] for row in indices]


def test_spans_are_concatenated_and_reordered():
    prefix = RaggedIds.from_lists([[7, 8], []], [[(0, 1), (1, 4)], []])
    ids = RaggedIds.concatenate([prefix, RaggedIds.from_lists([[9]], [[(2, 3)]])])
    assert ids.spans.tolist() == [[0, 1], [1, 4], [2, 3]]
    assert ids.take(np.array([2, 0])).spans.tolist() == [[2, 3], [0, 1], [1, 4]]
    assert RaggedIds.concatenate([prefix, RaggedIds.from_lists([[9]])]).spans is None
    assert RaggedIds.from_lists([[], []], [[], []]).spans.shape == (0, 2)
