"""`[CLS] A [SEP] B [SEP]` inside of a graph: what `data.packing` does with arrays.

B texts, S the longest row.
"""

from typing import Any

import tensorflow as tf

Inputs = dict[str, Any]

# Its class methods are hidden from type checkers.
_ragged: Any = tf.RaggedTensor


def pack(
    a: tf.RaggedTensor,
    b: tf.RaggedTensor | None,
    max_seq_length: Any,
    cls_id: int,
    sep_id: int,
    padded: bool = False,
) -> Inputs:
    """Shortens texts or pairs as the original does, and packs and pads them.

    Args:
        a: ids of the first texts [B, tokens].
        b: of the second ones; one without tokens is none. None where there are none.
        max_seq_length: the most that a row may have, special tokens included.
        cls_id: of `[CLS]`.
        sep_id: of `[SEP]`.
        padded: whether rows are padded to `max_seq_length`; otherwise to the longest.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`: int32 [B, S].
    """
    max_seq_length = tf.cast(max_seq_length, tf.int64)
    length_a = a.row_lengths()
    length_b = b.row_lengths() if b is not None else tf.zeros_like(length_a)
    room = max_seq_length - (2 + tf.cast(length_b > 0, tf.int64))
    length_a, length_b = truncated_lengths(length_a, length_b, room)
    first = _wrapped(cls_id, _beginnings(a, length_a), sep_id)
    segments = tf.zeros_like(first)
    if b is not None:
        second = _beginnings(b, length_b)
        # As in the original, a second text that lost its last token is none any more.
        ends = tf.cast(length_b > 0, tf.int64)
        tail = _ragged.from_row_lengths(tf.fill([tf.reduce_sum(ends)], sep_id), ends)
        second = tf.concat([second, tail], axis=1)
        segments = tf.concat([segments, tf.ones_like(second)], axis=1)
        first = tf.concat([first, second], axis=1)
    rows = {"input_ids": first, "input_mask": tf.ones_like(first), "segment_ids": segments}
    found = {name: values.to_tensor() for name, values in rows.items()}
    # Rows of no texts at all are as long as the shortest that there are.
    wanted = max_seq_length if padded else tf.constant(2, tf.int64)
    missing: Any = tf.maximum(wanted - tf.shape(found["input_ids"], out_type=tf.int64)[1], 0)
    return {name: tf.pad(values, [[0, 0], [0, missing]]) for name, values in found.items()}


def truncated_lengths(length_a: Any, length_b: Any, max_length: Any) -> tuple[Any, Any]:
    """How long the texts of pairs are when both together have to fit: int64 [B].

    `data.features.truncated_lengths` says how it is decided.
    """
    excess = tf.maximum(length_a + length_b - max_length, 0)
    only_longer = tf.minimum(tf.abs(length_a - length_b), excess)
    in_turns = excess - only_longer
    a_is_longer = length_a > length_b
    none = tf.zeros_like(only_longer)
    from_a = in_turns // 2 + tf.where(a_is_longer, only_longer, none)
    from_b = in_turns - in_turns // 2 + tf.where(a_is_longer, none, only_longer)
    return length_a - from_a, length_b - from_b


def _beginnings(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first tokens of each row."""
    starts = rows.row_starts()
    places = tf.ragged.range(starts, starts + lengths)
    return tf.gather(rows.flat_values, places)


def _wrapped(before: int, rows: tf.RaggedTensor, behind: int) -> tf.RaggedTensor:
    """Each row with a token before it and one behind."""
    ends = [tf.fill([rows.nrows(), 1], token) for token in (before, behind)]
    parts: Any = [ends[0], rows, ends[1]]
    return tf.concat(parts, axis=1)
