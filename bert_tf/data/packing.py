"""Packs batches of texts as `[CLS] A [SEP] B [SEP]`, whole, truncated or split into windows.

Windows overlap by half. In a pair, the window slides over the longer text. The shorter text is
repeated in every window, truncated to half of the available tokens if necessary.

Shapes: B is the number of rows. S is max_seq_length, at least 2 (pairs: 3; windows of pairs: 5).
Splitting turns B texts or pairs into N windows. `length_a` and `length_b` [B] count
tokens without special tokens; `length_b` is 0 for single texts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds, enumerate_groups

# Key of the number of tokens that truncation removed from each row, int64 [B]. For an example split
# into windows, the first row has the number of tokens in no window; the others have 0.
CUT_TOKENS = "cut_tokens"


def convert_examples(
    examples: Sequence[Any],
    label_ids: np.ndarray | None,
    max_seq_length: int,
    tokenizer: BatchTokenizer,
    windows: bool = False,
) -> dict[str, np.ndarray]:
    """Converts examples to B rows, as the original's `convert_single_example` does one at a time.

    Args:
        examples: `InputExample`s; each becomes one row or, with `windows`, one or more.
        label_ids: label id of each example; None if unlabeled.
        max_seq_length: S.
        tokenizer: tokenizer of the model's vocabulary.
        windows: whether to split long texts into several rows.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S]; `is_real_example`: int32 [B];
        `CUT_TOKENS`: int64 [B]; and, if `label_ids` are passed, `label_ids` [B].
    """
    a, b = encode_texts(examples, tokenizer)
    example_indices = np.arange(len(examples))  # one for each row
    num_dropped: np.ndarray | int = 0
    if windows:
        example_indices, a, b, num_dropped = split_into_windows(a, b, max_seq_length)
    vocab = tokenizer.reference.vocab
    packed = pack_batch(a, b, max_seq_length, vocab["[CLS]"], vocab["[SEP]"])
    # Exclude the special tokens: two, or three for a pair.
    kept = packed["input_mask"].sum(1) - 2 - packed["segment_ids"].any(1)
    num_cut = a.lengths + b.lengths - kept
    is_first_row = np.diff(example_indices, prepend=-1) > 0
    num_cut[is_first_row] += num_dropped
    labels = {} if label_ids is None else {"label_ids": label_ids[example_indices]}
    return {
        **packed,
        **labels,
        "is_real_example": np.ones(len(example_indices), np.int32),
        CUT_TOKENS: num_cut,
    }


def encode_texts(examples: Sequence[Any], tokenizer: BatchTokenizer) -> tuple[RaggedIds, RaggedIds]:
    """Returns the token ids of first and second texts; no ids for a missing second text."""
    a = tokenizer.encode([example.text_a for example in examples])
    return a, tokenizer.encode([example.text_b or "" for example in examples])


def pack_batch(
    a: RaggedIds, b: RaggedIds | None, max_seq_length: int, cls_id: int, sep_id: int
) -> dict[str, np.ndarray]:
    """Truncates, packs and pads texts or pairs.

    A pair with an empty second text is a single text; `b` is None if there are no pairs. For
    example, a pair with `max_seq_length=9` becomes (tokens, segment ids, mask):

        [CLS] is it [SEP] no [SEP]
          0   0  0    0   1    1   0 0 0
          1   1  1    1   1    1   0 0 0

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S].

    Raises:
        UserError: S is too small for the special tokens.
    """
    b = RaggedIds.from_lists([[]] * len(a)) if b is None else b
    is_pair = b.lengths > 0
    num_special = 3 if is_pair.any() else 2
    if max_seq_length < num_special:
        problem = f"the {num_special} special tokens, [CLS] and [SEP], do not fit"
        raise UserError(f"max_seq_length={max_seq_length} is too small: {problem}")
    room = max_seq_length - np.where(is_pair, 3, 2)  # without the special tokens
    length_a, length_b = truncated_lengths(a.lengths, b.lengths, room)
    input_ids = np.zeros((len(a), max_seq_length), np.int32)
    input_ids[:, 0] = cls_id
    ids_a, ids_b = a.ids, b.ids
    columns = (a.row_splits[:-1], length_a, b.row_splits[:-1], length_b)
    rows = zip(input_ids, *map(np.ndarray.tolist, columns), strict=True)
    # This loop is as fast as array indexing for many rows, and faster for one row.
    for row, first_a, num_a, first_b, num_b in rows:
        row[1 : num_a + 1] = ids_a[first_a : first_a + num_a]
        row[num_a + 1] = sep_id
        # As in the original, a pair without room for its second text becomes a single text.
        if num_b:
            row[num_a + 2 : num_a + 2 + num_b] = ids_b[first_b : first_b + num_b]
            row[num_a + 2 + num_b] = sep_id
    start_b = length_a + 2
    lengths = start_b + np.where(length_b > 0, length_b + 1, 0)
    positions = np.arange(max_seq_length)
    mask = positions < lengths[:, None]
    in_second_text = mask & (positions >= start_b[:, None])
    return {
        "input_ids": input_ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": in_second_text.astype(np.int32),
    }


def truncated_lengths(
    length_a: np.ndarray, length_b: np.ndarray, max_length: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lengths after truncating pairs to `max_length` tokens in total.

    As in the original, tokens are removed one by one from the end of the longer text; on a tie,
    from the second. So a short text paired with a long one is kept whole.
    """
    length_b = np.minimum(length_b, np.maximum(max_length // 2, max_length - length_a))
    return np.minimum(length_a, max_length - length_b), length_b


def window_counts(length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Returns the number of windows of each text or pair, at least 1, int64 [B]."""
    long, _, window, stride = _layout(length_a, length_b, max_seq_length)
    return 1 + -(-np.maximum(long - window, 0) // stride)


def split_into_windows(
    a: RaggedIds, b: RaggedIds, max_seq_length: int
) -> tuple[np.ndarray, RaggedIds, RaggedIds, np.ndarray]:
    """Splits texts or pairs into windows that fit into the model with their special tokens.

    Returns the text index of each window, int64 [N], ascending; the first and the second text of
    each window; and how many tokens of each pair's shorter text are in no window, int64 [B].
    """
    length_a, length_b = a.lengths, b.lengths
    counts = window_counts(length_a, length_b, max_seq_length)
    text_index, window_index = enumerate_groups(counts)
    layout = _layout(length_a, length_b, max_seq_length)
    long, short, window, stride = (sizes[text_index] for sizes in layout)
    # The last window ends where the text ends, but is as long as the others.
    start = np.minimum(window_index * stride, np.maximum(long - window, 0))
    length = np.minimum(long, window)
    a_slides = (length_a >= length_b)[text_index]
    first = a.take(text_index, np.where(a_slides, start, 0), np.where(a_slides, length, short))
    second = b.take(text_index, np.where(a_slides, 0, start), np.where(a_slides, short, length))
    return text_index, first, second, np.minimum(length_a, length_b) - layout[1]


def _layout(
    length_a: np.ndarray, length_b: np.ndarray, max_seq_length: int
) -> tuple[np.ndarray, ...]:
    """Returns [B] each: longer length, shorter length after truncation, window length, stride."""
    room = max_seq_length - np.where(length_b > 0, 3, 2)
    long = np.maximum(length_a, length_b)
    _, short = truncated_lengths(long, np.minimum(length_a, length_b), room)
    window = room - short
    return long, short, window, np.maximum(window // 2, 1)
