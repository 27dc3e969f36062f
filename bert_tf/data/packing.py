"""Packs many texts at once as `[CLS] A [SEP] B [SEP]`; `features.pack` does so for one.

B rows, S max_seq_length.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.features import InputExample, find_label_id, require_room, truncated_lengths
from bert_tf.data.text_windows import cut_into_windows, dropped_tokens
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds, enumerate_groups

CUT_TOKENS = "cut_tokens"
"""Key for the number of tokens that truncation removed from each row, int64 [B].

For an example in windows, the first one counts the tokens that are in none of them.
"""


def label_ids_of(examples: Sequence[InputExample], label_list: Sequence[str]) -> np.ndarray:
    """Returns the index of each label in the list, int32 [B]; float32 labels if it is empty."""
    labels = [find_label_id(example, label_list) for example in examples]
    return np.array(labels, np.int32 if label_list else np.float32)


def convert_examples(
    examples: Sequence[InputExample],
    label_ids: np.ndarray | None,
    max_seq_length: int,
    tokenizer: BatchTokenizer,
    windows: bool = False,
) -> dict[str, np.ndarray]:
    """Converts examples to B rows, as `features.convert_single_example` does for one.

    Args:
        examples: one for each row, or more rows with `windows`.
        label_ids: of each example; None without labels.
        max_seq_length: S.
        tokenizer: tokenizer of the model's vocabulary.
        windows: whether to split long texts into several rows, see `text_windows`.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S]; `is_real_example`: int32 [B];
        `label_ids` [B], if given; and `CUT_TOKENS`.
    """
    a, b = encode_texts(examples, tokenizer)
    rows = np.arange(len(examples))
    lost: np.ndarray | int = 0
    if windows:
        lost = dropped_tokens(a.lengths, b.lengths, max_seq_length)
        rows, a, b = cut_into_windows(a, b, max_seq_length)
    vocab = tokenizer.reference.vocab
    packed = pack_batch(a, b, max_seq_length, vocab["[CLS]"], vocab["[SEP]"])
    # Without the special tokens, of which a pair has three.
    kept = packed["input_mask"].sum(1) - 2 - packed["segment_ids"].any(1)
    cut = a.lengths + b.lengths - kept
    cut[np.diff(rows, prepend=-1) > 0] += lost
    labels = {} if label_ids is None else {"label_ids": label_ids[rows]}
    return {
        **packed,
        **labels,
        "is_real_example": np.ones(len(rows), np.int32),
        CUT_TOKENS: cut,
    }


def encode_texts(
    examples: Sequence[InputExample], tokenizer: BatchTokenizer
) -> tuple[RaggedIds, RaggedIds]:
    """Returns ids of the first and the second texts; single texts have an empty second one."""
    a = tokenizer.encode([example.text_a for example in examples])
    return a, tokenizer.encode([example.text_b or "" for example in examples])


def pack_batch(
    a: RaggedIds, b: RaggedIds | None, max_seq_length: int, cls_id: int, sep_id: int
) -> dict[str, np.ndarray]:
    """Truncates, packs and pads texts or pairs, as `features` does one by one.

    A second text without tokens counts as none; `b` is None if there are no pairs.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S].

    Raises:
        UserError: not even the special tokens fit into S.
    """
    every = np.arange(len(a))
    if b is None:
        b = a.take(every, lengths=np.zeros_like(a.lengths))
    pair = b.lengths > 0
    require_room(bool(pair.any()), max_seq_length)
    room = max_seq_length - np.where(pair, 3, 2)
    length_a, length_b = truncated_lengths(a.lengths, b.lengths, room)
    # As in the original, a second text that lost all its tokens is none.
    pair = length_b > 0
    input_ids = np.zeros((len(a), max_seq_length), np.int32)
    input_ids[:, 0] = cls_id
    put(input_ids, a.ids, a.row_splits, length_a, np.ones_like(length_a))
    input_ids[every, length_a + 1] = sep_id
    start_b = length_a + 2
    put(input_ids, b.ids, b.row_splits, length_b, start_b)
    total = start_b + np.where(pair, length_b + 1, 0)
    input_ids[every[pair], total[pair] - 1] = sep_id
    positions = np.arange(max_seq_length)
    mask = positions < total[:, None]
    second = mask & (positions >= start_b[:, None])
    return {
        "input_ids": input_ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": second.astype(np.int32),
    }


def put(
    rows: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, first: np.ndarray
) -> None:
    """Writes `ids[starts : starts + lengths]` into each of the rows [B, S], from column `first` on.

    `starts`, `lengths` and `first` are [B].
    """
    row, offset = enumerate_groups(lengths)
    rows[row, first[row] + offset] = ids[starts[row] + offset]
