"""Sliding windows over long texts: coverage, maximum length and overlap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.packing import split_into_windows, window_counts
from bert_tf.tokenization.ragged_ids import RaggedIds

LENGTH_PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def _make_texts(counts):
    # Tokens are their own positions, so that gaps are detected.
    return RaggedIds.from_lists([list(range(count)) for count in counts])


@given(LENGTH_PAIRS, st.integers(5, 20), st.booleans())
def test_windows_cover_all_tokens(pairs, max_seq_length, with_second):
    a = _make_texts([first for first, _ in pairs])
    b = _make_texts([second * with_second for _, second in pairs])
    rows, first, second, dropped = split_into_windows(a, b, max_seq_length)
    counts = window_counts(a.lengths, b.lengths, max_seq_length)
    assert rows.tolist() == np.repeat(np.arange(len(pairs)), counts).tolist()
    for index, (length_a, length_b) in enumerate(pairs):
        length_b *= with_second
        windows = np.flatnonzero(rows == index)
        parts_a = [first[window].tolist() for window in windows]
        parts_b = [second[window].tolist() for window in windows]
        covered = {("a", token) for part in parts_a for token in part}
        covered |= {("b", token) for part in parts_b for token in part}
        assert dropped[index] == length_a + length_b - len(covered)
        max_tokens = max_seq_length - (3 if length_b else 2)
        assert all(len(x) + len(y) <= max_tokens for x, y in zip(parts_a, parts_b, strict=True))
        if length_a + length_b <= max_tokens:
            assert parts_a == [list(range(length_a))]
            assert parts_b == [list(range(length_b))]
            continue
        # Windows are ordered, without gaps, and of equal length.
        sliding, fixed, length = (
            (parts_a, parts_b, length_a) if length_a >= length_b else (parts_b, parts_a, length_b)
        )
        assert sorted({token for part in sliding for token in part}) == list(range(length))
        assert all(part == list(range(part[0], part[-1] + 1)) for part in sliding)
        assert len({len(part) for part in sliding}) == 1
        assert sliding == sorted(sliding)
        kept = min(length_a, length_b, max_tokens // 2)
        assert all(part == list(range(kept)) for part in fixed)


def test_windows_overlap_by_half():
    _, windows, _, _ = split_into_windows(_make_texts([10]), _make_texts([0]), 8)
    assert [windows[row].tolist() for row in range(len(windows))] == [
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 6, 7, 8],
        [4, 5, 6, 7, 8, 9],
    ]
