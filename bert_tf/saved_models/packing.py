"""Packs `[CLS] A [SEP] B [SEP]` in a TensorFlow graph, as `data.packing` does with arrays.

B texts, S the longest row.
"""

from typing import Any

import tensorflow as tf

Inputs = dict[str, Any]

# Type checkers do not see its class methods.
_ragged: Any = tf.RaggedTensor


def pack(
    a: tf.RaggedTensor,
    b: tf.RaggedTensor | None,
    max_seq_length: Any,
    cls_id: int,
    sep_id: int,
    padded: bool = False,
) -> Inputs:
    """Truncates texts or pairs as the original does, packs and pads them.

    Args:
        a: ids of the first texts [B, tokens].
        b: ids of the second texts, or None; a text without tokens counts as none.
        max_seq_length: longest row, special tokens included.
        cls_id: of `[CLS]`.
        sep_id: of `[SEP]`.
        padded: whether to pad to `max_seq_length` instead of the longest row.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`: int32 [B, S].
    """
    max_seq_length = tf.cast(max_seq_length, tf.int64)
    length_a = a.row_lengths()
    length_b = b.row_lengths() if b is not None else tf.zeros_like(length_a)
    room = max_seq_length - (2 + tf.cast(length_b > 0, tf.int64))
    length_a, length_b = truncated_lengths(length_a, length_b, room)
    first = _wrap(cls_id, _truncate(a, length_a), sep_id)
    segments = tf.zeros_like(first)
    if b is not None:
        second = _truncate(b, length_b)
        # As in the original, a second text that lost all tokens gets no [SEP].
        ends = tf.cast(length_b > 0, tf.int64)
        tail = _ragged.from_row_lengths(tf.fill([tf.reduce_sum(ends)], sep_id), ends)
        second = tf.concat([second, tail], axis=1)
        segments = tf.concat([segments, tf.ones_like(second)], axis=1)
        first = tf.concat([first, second], axis=1)
    rows = {"input_ids": first, "input_mask": tf.ones_like(first), "segment_ids": segments}
    padded_rows = {name: values.to_tensor() for name, values in rows.items()}
    # An empty batch gets the shortest possible rows.
    wanted = max_seq_length if padded else tf.constant(2, tf.int64)
    missing: Any = tf.maximum(wanted - tf.shape(padded_rows["input_ids"], out_type=tf.int64)[1], 0)
    return {name: tf.pad(values, [[0, 0], [0, missing]]) for name, values in padded_rows.items()}


def truncated_lengths(length_a: Any, length_b: Any, max_length: Any) -> tuple[Any, Any]:
    """Returns the lengths of pairs that are truncated to a common limit, int64 [B].

    The same as `data.features.truncated_lengths`.
    """
    excess = tf.maximum(length_a + length_b - max_length, 0)
    only_longer = tf.minimum(tf.abs(length_a - length_b), excess)
    in_turns = excess - only_longer
    a_is_longer = length_a > length_b
    none = tf.zeros_like(only_longer)
    from_a = in_turns // 2 + tf.where(a_is_longer, only_longer, none)
    from_b = in_turns - in_turns // 2 + tf.where(a_is_longer, none, only_longer)
    return length_a - from_a, length_b - from_b


def _truncate(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first tokens of each row."""
    starts = rows.row_starts()
    indices = tf.ragged.range(starts, starts + lengths)
    return tf.gather(rows.flat_values, indices)


def _wrap(before: int, rows: tf.RaggedTensor, after: int) -> tf.RaggedTensor:
    """Adds a token before and one after each row."""
    ends = [tf.fill([rows.nrows(), 1], token) for token in (before, after)]
    parts: Any = [ends[0], rows, ends[1]]
    return tf.concat(parts, axis=1)
