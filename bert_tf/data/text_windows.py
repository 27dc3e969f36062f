"""Texts that are too long for the model, as windows that overlap by half.

A single text slides as a whole. Of a pair the longer text slides and the shorter one stands in
every window, cut to half of the room if need be. B texts or pairs, N windows, S max_seq_length.
"""

import numpy as np

from bert_tf.token_ids import TokenIds


def window_counts(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """How many windows texts have, each at least one.

    Args:
        length_a: tokens of the first texts [B].
        length_b: of the second ones [B], 0 where there is none.
        max_seq_length: S, at least 3, and 5 where there are pairs.

    Returns:
        int64 [B].
    """
    long, _, room = _layout(length_a, length_b, max_seq_length)
    beyond = np.maximum(long - room, 0)
    return 1 + -(-beyond // _stride(room))


def dropped_tokens(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """How many tokens of texts are in none of their windows: what the shorter text of a pair lacks.

    Args:
        length_a: tokens of the first texts [B].
        length_b: of the second ones [B], 0 where there is none.
        max_seq_length: S, at least 3, and 5 where there are pairs.

    Returns:
        int64 [B].
    """
    _, kept, _ = _layout(length_a, length_b, max_seq_length)
    return np.minimum(length_a, length_b) - kept


def cut_into_windows(
    a: TokenIds, b: TokenIds | None, max_seq_length: int
) -> tuple[np.ndarray, TokenIds, TokenIds | None]:
    """The windows of texts or pairs, which fit into the model with their special tokens.

    Args:
        a: the first texts.
        b: the second ones, as many; None when there are none.
        max_seq_length: S, at least 3, and 5 where there are pairs.

    Returns:
        For each window the text it is of, int64 [N], in order; the first texts of the windows, and
        the second ones.
    """
    length_a = a.lengths
    length_b = b.lengths if b else np.zeros_like(length_a)
    counts = window_counts(length_a, length_b, max_seq_length)
    rows = np.repeat(np.arange(len(a)), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    long, short, room = (values[rows] for values in _layout(length_a, length_b, max_seq_length))
    # The last one ends where the text ends, and is as long as the others.
    begin = np.minimum(number * _stride(room), np.maximum(long - room, 0))
    length = np.minimum(long, room)
    a_slides = (length_a >= length_b)[rows]
    first = a.take(rows, np.where(a_slides, begin, 0), np.where(a_slides, length, short))
    if b is None:
        return rows, first, None
    return (
        rows,
        first,
        b.take(rows, np.where(a_slides, 0, begin), np.where(a_slides, short, length)),
    )


def _layout(
    length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of the text that slides; of the other one, as it is kept; and room for the first."""
    room = max_seq_length - np.where(length_b > 0, 3, 2)
    long, short = np.maximum(length_a, length_b), np.minimum(length_a, length_b)
    short = np.where(long + short > room, np.minimum(short, room // 2), short)
    return long, short, room - short


def _stride(room: np.ndarray) -> np.ndarray:
    return np.maximum(room // 2, 1)
