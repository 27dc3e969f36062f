"""Splits texts that are too long for the model into windows that overlap by half.

Of a pair, the window slides over the longer text; the shorter one is repeated in every window,
truncated to half of the room if necessary.

B texts or pairs, N windows, S max_seq_length: at least 3, for pairs 5. `length_a` and `length_b`
[B] are numbers of tokens, `length_b` is 0 for single texts.
"""

import numpy as np

from bert_tf.tokenization.ragged_ids import RaggedIds, enumerate_groups


def window_counts(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Computes the number of windows of each text, at least 1, int64 [B]."""
    long, _, room = _layout(length_a, length_b, max_seq_length)
    beyond = np.maximum(long - room, 0)
    return 1 + -(-beyond // _stride(room))


def dropped_tokens(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Counts the tokens that are in no window, int64 [B]: where the shorter text is truncated."""
    _, kept, _ = _layout(length_a, length_b, max_seq_length)
    return np.minimum(length_a, length_b) - kept


def cut_into_windows(
    a: RaggedIds, b: RaggedIds, max_seq_length: int
) -> tuple[np.ndarray, RaggedIds, RaggedIds]:
    """Splits texts or pairs into windows that fit into the model with their special tokens.

    Returns the index of the text of each window, int64 [N], ascending; then the first texts of the
    windows, and the second ones.
    """
    length_a, length_b = a.lengths, b.lengths
    counts = window_counts(length_a, length_b, max_seq_length)
    rows, number = enumerate_groups(counts)
    long, short, room = (values[rows] for values in _layout(length_a, length_b, max_seq_length))
    # The last window ends where the text ends, and is as long as the others.
    start = np.minimum(number * _stride(room), np.maximum(long - room, 0))
    length = np.minimum(long, room)
    a_slides = (length_a >= length_b)[rows]
    first = a.take(rows, np.where(a_slides, start, 0), np.where(a_slides, length, short))
    second = b.take(rows, np.where(a_slides, 0, start), np.where(a_slides, short, length))
    return rows, first, second


def _layout(
    length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns lengths of the longer text, the truncated shorter one, and the window."""
    room = max_seq_length - np.where(length_b > 0, 3, 2)
    long, short = np.maximum(length_a, length_b), np.minimum(length_a, length_b)
    short = np.where(long + short > room, np.minimum(short, room // 2), short)
    return long, short, room - short


def _stride(room: np.ndarray) -> np.ndarray:
    return np.maximum(room // 2, 1)
