"""Token ids of many texts at once, in the form that BERT reads: `[CLS] A [SEP] B [SEP]`.

B rows, S max_seq_length. The same as `features.pack` does for one example, for a whole array.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.features import InputExample, find_label_id, require_room, truncated_lengths
from bert_tf.data.text_windows import cut_into_windows, dropped_tokens
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

CUT_TOKENS = "cut_tokens"
"""Beside the features of rows: how many tokens of its texts each row lacks, int64 [B].

Of an example in windows the first one has what is in none of them, and the others 0.
"""


def label_ids_of(examples: Sequence[InputExample], label_list: Sequence[str]) -> np.ndarray:
    """The labels of examples as numbers.

    Args:
        examples: B of them.
        label_list: the labels in the order of their ids; empty when the label is a number.

    Returns:
        int32, or float32 for numbers [B].

    Raises:
        UserError: as `features.find_label_id`.
    """
    labels = [find_label_id(example, label_list) for example in examples]
    return np.array(labels, np.int32 if label_list else np.float32)


def convert_examples(
    examples: Sequence[InputExample],
    label_ids: np.ndarray | None,
    max_seq_length: int,
    tokenizer: BatchTokenizer,
    windows: bool = False,
) -> dict[str, np.ndarray]:
    """What `features.convert_single_example` gives, for many examples at once.

    Args:
        examples: of them, in B rows.
        label_ids: one for each example; None where there are none.
        max_seq_length: length of the rows.
        tokenizer: of the model's vocabulary.
        windows: read long texts in several rows, see `text_windows`, instead of cutting them.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S]; `is_real_example`: int32 [B];
        `label_ids` [B], if there are any; and `CUT_TOKENS`.

    Raises:
        UserError: `max_seq_length` has no room for the special tokens.
    """
    a, b = encode_texts(examples, tokenizer)
    rows = np.arange(len(examples))
    lost = np.zeros_like(a.lengths)
    if windows:
        lost = dropped_tokens(a.lengths, b.lengths if b else lost, max_seq_length)
        rows, a, b = cut_into_windows(a, b, max_seq_length)
    vocab = tokenizer.reference.vocab
    packed = pack_batch(a, b, max_seq_length, vocab["[CLS]"], vocab["[SEP]"])
    total = a.lengths + (b.lengths if b else 0)
    # Of two special tokens or three, those that a text without a second one has.
    kept = packed["input_mask"].sum(1) - 2 - (packed["segment_ids"].max(1, initial=0) > 0)
    cut = total - kept
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
) -> tuple[RaggedIds, RaggedIds | None]:
    """Ids of first and of second texts; None where no example has a second one."""
    a = tokenizer.encode([example.text_a for example in examples])
    if not any(example.text_b for example in examples):
        return a, None
    return a, tokenizer.encode([example.text_b or "" for example in examples])


def pack_batch(
    a: RaggedIds, b: RaggedIds | None, max_seq_length: int, cls_id: int, sep_id: int
) -> dict[str, np.ndarray]:
    """Shortens texts or pairs as `truncate_seq_pair` does, and packs and pads them.

    Args:
        a: the first texts.
        b: the second texts, as many; None when there are none. One without tokens is none.
        max_seq_length: length of the rows; at least 2, or 3 where there are pairs.
        cls_id: of `[CLS]`.
        sep_id: of `[SEP]`.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S].

    Raises:
        UserError: not even the special tokens fit.
    """
    rows = len(a)
    length_a = a.lengths
    length_b = b.lengths if b else np.zeros_like(length_a)
    pair = length_b > 0
    require_room(bool(pair.any()), max_seq_length)
    length_a, length_b = truncated_lengths(
        length_a, length_b, np.where(pair, max_seq_length - 3, max_seq_length - 2)
    )

    # As in the original, a second text that lost its last token is none any more.
    pair = length_b > 0
    input_ids = np.zeros((rows, max_seq_length), np.int32)
    every = np.arange(rows)
    input_ids[:, 0] = cls_id
    put(input_ids, a.ids, a.row_splits, length_a, np.ones_like(length_a))
    input_ids[every, length_a + 1] = sep_id
    total = length_a + 2
    if b:
        put(input_ids, b.ids, b.row_splits, length_b, total)
        input_ids[every[pair], (total + length_b)[pair]] = sep_id
        total = total + np.where(pair, length_b + 1, 0)
    places = np.arange(max_seq_length)
    mask = places < total[:, None]
    second = mask & (places >= length_a[:, None] + 2)
    return {
        "input_ids": input_ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": second.astype(np.int32),
    }


def put(
    rows: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, first: np.ndarray
) -> None:
    """Writes `ids[starts : starts + lengths]` into each row, from column `first` on.

    Args:
        rows: [B, S]; changed.
        ids: [N].
        starts: [B].
        lengths: [B].
        first: [B].
    """
    row = np.repeat(np.arange(len(rows)), lengths)
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows[row, first[row] + place] = ids[starts[row] + place]
