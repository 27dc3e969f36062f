"""Splits texts that are too long for the model into windows that overlap by half.

In a pair, the window slides over the longer text. The shorter text is repeated in every window,
truncated to half of the available tokens if necessary.

There are B texts or pairs, and N windows. `max_seq_length` must be at least 3, or 5 for pairs.
`length_a` and `length_b` [B] count tokens without special tokens; `length_b` is 0 for single texts.
"""

import numpy as np

from bert_tf.tokenization.ragged_ids import RaggedIds, enumerate_groups


def window_counts(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Returns the number of windows of each text or pair, at least 1, int64 [B]."""
    long, _, window = _layout(length_a, length_b, max_seq_length)
    excess = np.maximum(long - window, 0)
    return 1 + -(-excess // _stride(window))


def count_dropped(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Returns how many tokens of each pair's shorter text are in no window, int64 [B]."""
    _, kept, _ = _layout(length_a, length_b, max_seq_length)
    return np.minimum(length_a, length_b) - kept


def split_into_windows(
    a: RaggedIds, b: RaggedIds, max_seq_length: int
) -> tuple[np.ndarray, RaggedIds, RaggedIds]:
    """Splits texts or pairs into windows that fit into the model with their special tokens.

    Returns the text index of each window, int64 [N], ascending, and the first and the second text
    of each window.
    """
    length_a, length_b = a.lengths, b.lengths
    counts = window_counts(length_a, length_b, max_seq_length)
    text_index, window_index = enumerate_groups(counts)
    layout = _layout(length_a, length_b, max_seq_length)
    long, short, window = (lengths[text_index] for lengths in layout)
    # The last window ends where the text ends, but is as long as the others.
    start = np.minimum(window_index * _stride(window), np.maximum(long - window, 0))
    length = np.minimum(long, window)
    a_slides = (length_a >= length_b)[text_index]
    first = a.take(text_index, np.where(a_slides, start, 0), np.where(a_slides, length, short))
    second = b.take(text_index, np.where(a_slides, 0, start), np.where(a_slides, short, length))
    return text_index, first, second


def _layout(
    length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the lengths of the longer text, of the truncated shorter one, and of the window."""
    room = max_seq_length - np.where(length_b > 0, 3, 2)
    long, short = np.maximum(length_a, length_b), np.minimum(length_a, length_b)
    short = np.where(long + short > room, np.minimum(short, room // 2), short)
    return long, short, room - short


def _stride(window: np.ndarray) -> np.ndarray:
    return np.maximum(window // 2, 1)
