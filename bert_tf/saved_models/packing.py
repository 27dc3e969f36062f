"""Packs `[CLS] A [SEP] B [SEP]` in a TensorFlow graph, as `data.packing` does with arrays.

In shapes, B is the number of texts and S the length of the longest row.
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
    padded: bool = False,
) -> Inputs:
    """Truncates ids of texts or pairs, ragged [B, tokens], and packs them.

    A second text without tokens counts as none. Rows have the length of the longest one, or with
    `padded` `max_seq_length`.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`: int32 [B, S].
    """
    max_seq_length = tf.cast(max_seq_length, tf.int64)
    length_a = a.row_lengths()
    length_b = b.row_lengths() if b is not None else tf.zeros_like(length_a)
    room = max_seq_length - (2 + tf.cast(length_b > 0, tf.int64))
    # As in the original: the longer text is cut down to the other one, then both in turns, B first.
    length_b = tf.minimum(length_b, tf.maximum(room // 2, room - length_a))
    length_a = tf.minimum(length_a, room - length_b)
    cls, sep = (tf.fill([a.nrows(), 1], token) for token in (cls_id, sep_id))
    parts: Any = [cls, _truncate(a, length_a), sep]
    first = tf.concat(parts, axis=1)
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


def _truncate(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    starts = rows.row_starts()
    return tf.gather(rows.flat_values, tf.ragged.range(starts, starts + lengths))
