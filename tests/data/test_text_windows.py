"""Windows over long texts: complete coverage, maximum length and overlap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.text_windows import count_dropped, split_into_windows, window_counts
from bert_tf.tokenization.ragged_ids import RaggedIds

# Each token is its own position, so that gaps are detected.
lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def _texts(counts):
    return RaggedIds.from_lists([list(range(count)) for count in counts])


@given(lengths, st.integers(5, 20), st.booleans())
def test_windows_cover_all_tokens(pairs, max_seq_length, with_second):
    a = _texts([first for first, _ in pairs])
    b = _texts([second * with_second for _, second in pairs])
    rows, first, second = split_into_windows(a, b, max_seq_length)
    of_both = a.lengths, b.lengths
    counts = window_counts(*of_both, max_seq_length)
    lost = count_dropped(*of_both, max_seq_length)
    assert rows.tolist() == np.repeat(np.arange(len(pairs)), counts).tolist()
    for number, lengths_of_pair in enumerate(pairs):
        length_a, length_b = lengths_of_pair[0], lengths_of_pair[1] if with_second else 0
        mine = np.flatnonzero(rows == number)
        parts_a = [first[row].tolist() for row in mine]
        parts_b = [second[row].tolist() for row in mine]
        present = {("a", token) for part in parts_a for token in part}
        present |= {("b", token) for part in parts_b for token in part}
        assert lost[number] == length_a + length_b - len(present)
        room = max_seq_length - (3 if length_b else 2)
        assert all(len(x) + len(y) <= room for x, y in zip(parts_a, parts_b, strict=True))
        if length_a + length_b <= room:
            assert parts_a == [list(range(length_a))]
            assert parts_b == [list(range(length_b))]
            continue
        # Windows are ordered, without gaps, and of equal length.
        slides, stays, length = (
            (parts_a, parts_b, length_a) if length_a >= length_b else (parts_b, parts_a, length_b)
        )
        assert sorted({token for part in slides for token in part}) == list(range(length))
        assert all(part == list(range(part[0], part[-1] + 1)) for part in slides)
        assert len({len(part) for part in slides}) == 1
        assert slides == sorted(slides)
        kept = min(length_a, length_b, room // 2)
        assert all(part == list(range(kept)) for part in stays)


def test_windows_overlap_by_half():
    _, windows, _ = split_into_windows(_texts([10]), _texts([0]), 8)
    assert [windows[row].tolist() for row in range(len(windows))] == [
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 6, 7, 8],
        [4, 5, 6, 7, 8, 9],
    ]
