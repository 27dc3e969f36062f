"""Packs `[CLS] a [SEP] b [SEP]` with TensorFlow ops, as `data.packing` does with NumPy.

Shapes: B texts or text pairs, S length of the longest row.
"""

from typing import Any

import tensorflow as tf

Inputs = dict[str, Any]

# Type checkers do not know the class methods of tf.RaggedTensor.
_ragged: Any = tf.RaggedTensor


def pack(
    a: tf.RaggedTensor,
    b: tf.RaggedTensor | None,
    max_seq_length: Any,
    cls_id: int,
    sep_id: int,
    pad_to_max: bool = False,
) -> Inputs:
    """Truncates and packs texts `a`, or pairs of `a` and `b`: ragged ids [B, tokens].

    If the second text of a pair is empty, the first is packed as a single text. Rows are padded to
    the longest row, or to `max_seq_length` if `pad_to_max` is True.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`: int32 [B, S].
    """
    max_seq_length = tf.cast(max_seq_length, tf.int64)
    length_a = a.row_lengths()
    length_b = b.row_lengths() if b is not None else tf.zeros_like(length_a)
    # The number of tokens besides [CLS] and one or two [SEP].
    room = max_seq_length - (2 + tf.cast(length_b > 0, tf.int64))
    # As in the original, the longer text is truncated to the length of the other, and then both
    # are truncated alternately, beginning with `b`.
    length_b = tf.minimum(length_b, tf.maximum(room // 2, room - length_a))
    length_a = tf.minimum(length_a, room - length_b)
    cls, sep = (tf.fill([a.nrows(), 1], token) for token in (cls_id, sep_id))
    parts: Any = [cls, _truncate(a, length_a), sep]
    row = tf.concat(parts, axis=1)
    segments = tf.zeros_like(row)
    if b is not None:
        second = _truncate(b, length_b)
        # As in the original, a second text that lost all tokens by truncation gets no [SEP].
        has_second = tf.cast(length_b > 0, tf.int64)
        second_sep = tf.fill([tf.reduce_sum(has_second)], sep_id)
        second = tf.concat([second, _ragged.from_row_lengths(second_sep, has_second)], axis=1)
        segments = tf.concat([segments, tf.ones_like(second)], axis=1)
        row = tf.concat([row, second], axis=1)
    rows = {"input_ids": row, "input_mask": tf.ones_like(row), "segment_ids": segments}
    dense = {name: values.to_tensor() for name, values in rows.items()}
    # Without this minimum, the rows of an empty batch would have length 0.
    min_length = max_seq_length if pad_to_max else tf.constant(2, tf.int64)
    padding: Any = tf.maximum(min_length - tf.shape(dense["input_ids"], out_type=tf.int64)[1], 0)
    return {name: tf.pad(values, [[0, 0], [0, padding]]) for name, values in dense.items()}


def _truncate(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    starts = rows.row_starts()
    return tf.gather(rows.flat_values, tf.ragged.range(starts, starts + lengths))
