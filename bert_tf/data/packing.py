"""Token ids of many texts at once, in the form that BERT reads: `[CLS] A [SEP] B [SEP]`.

B rows, S max_seq_length. The same as `features.pack` does for one example, for a whole array.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.data.features import InputExample, find_label_id, require_room, truncated_lengths
from bert_tf.token_ids import TokenIds


def convert_examples(
    examples: Sequence[InputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: BatchTokenizer,
) -> dict[str, np.ndarray]:
    """What `features.convert_single_example` gives, for many examples at once.

    Args:
        examples: B of them.
        label_list: the labels in the order of their ids; empty when the label is a number.
        max_seq_length: length of the rows.
        tokenizer: of the model's vocabulary.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [B, S]; `label_ids`: int32, or float32 for
        numbers [B]; `is_real_example`: int32 [B].

    Raises:
        UserError: as `features.convert_single_example`.
    """
    labels = [find_label_id(example, label_list) for example in examples]
    a = tokenizer.encode([example.text_a for example in examples])
    pairs = any(example.text_b for example in examples)
    b = tokenizer.encode([example.text_b or "" for example in examples]) if pairs else None
    vocab = tokenizer.reference.vocab
    return {
        **pack_batch(a, b, max_seq_length, vocab["[CLS]"], vocab["[SEP]"]),
        "label_ids": np.array(labels, np.int32 if label_list else np.float32),
        "is_real_example": np.ones(len(examples), np.int32),
    }


def pack_batch(
    a: TokenIds, b: TokenIds | None, max_seq_length: int, cls_id: int, sep_id: int
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
