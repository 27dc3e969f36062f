"""Packing and batch conversion of examples, compared with the original and with its rules."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.data.features import InputExample, find_label_id
from bert_tf.data.packing import CUT_TOKENS, convert_examples, pack_batch, truncated_lengths
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds
from tests.data import CONVERSIONS
from tests.data.test_features import conversions, inputs_of
from tests.oracle import golden


@pytest.mark.parametrize("name", CONVERSIONS)
def test_arrays_match_the_original(name):
    expected = np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False)
    conversion = conversions()[name]
    reference, task, examples = inputs_of(conversion)
    tokenizer = BatchTokenizer(reference)
    labels = np.int32([find_label_id(example, task.labels) for example in examples])
    actual = convert_examples(examples, labels, conversion["max_seq_length"], tokenizer)
    assert (actual.pop(CUT_TOKENS) >= 0).all()
    # Without the padding examples that fill the last batch on a TPU.
    assert len(examples) == len(expected["label_ids"]) - conversion["num_padding_examples_at_end"]
    assert actual.keys() == set(expected.files)
    for key, values in actual.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[key][: len(examples)], key)


def test_pair_truncation_matches_the_original():
    table = json.loads(golden("classifier/edge_cases.json").read_text("utf-8"))
    for case in table["truncate_seq_pair"]:
        lengths = (np.array(case[name]) for name in ("len_a", "len_b", "max_length"))
        kept_a, kept_b = truncated_lengths(*lengths)
        assert (kept_a, kept_b) == (case["kept_a"], case["kept_b"]), case


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 130))
def test_pair_truncation(len_a, len_b, max_length):
    lengths = truncated_lengths(*map(np.array, (len_a, len_b, max_length)))
    # The original rule, token by token.
    kept_a, kept_b = len_a, len_b
    while kept_a + kept_b > max_length:
        if kept_a > kept_b:
            kept_a -= 1
        else:
            kept_b -= 1
    assert lengths == (kept_a, kept_b)


ids = st.lists(st.integers(1, 9), max_size=9)


@given(st.lists(st.tuples(ids, ids), max_size=5), st.integers(3, 16), st.booleans())
def test_rows_match_the_definition(pairs, max_seq_length, with_second):
    a = RaggedIds.from_lists([one for one, _ in pairs])
    b = RaggedIds.from_lists([two for _, two in pairs]) if with_second else None
    actual = pack_batch(a, b, max_seq_length, 101, 102)
    for row, (one, two) in enumerate(pairs):
        one, two = one.copy(), two.copy() if with_second else []
        room = max_seq_length - (3 if two else 2)
        while len(one) + len(two) > room:
            (one if len(one) > len(two) else two).pop()
        first, second = [101, *one, 102], [*two, 102] if two else []
        padding = [0] * (max_seq_length - len(first) - len(second))
        assert actual["input_ids"][row].tolist() == first + second + padding
        assert actual["input_mask"][row].tolist() == [1] * len(first + second) + padding
        segment_ids = [0] * len(first) + [1] * len(second) + padding
        assert actual["segment_ids"][row].tolist() == segment_ids


@pytest.mark.parametrize(("b", "max_seq_length", "special"), [(None, 1, 2), ([7], 2, 3)])
def test_no_room_for_special_tokens(b, max_seq_length, special):
    expected = f"max_seq_length={max_seq_length} is too small: the {special} special tokens"
    second = None if b is None else RaggedIds.from_lists([b])
    with pytest.raises(UserError, match=expected):
        pack_batch(RaggedIds.from_lists([[7]]), second, max_seq_length, 101, 102)


def test_two_special_tokens_fill_a_row_of_two():
    row = pack_batch(RaggedIds.from_lists([[7]]), None, 2, 101, 102)
    assert row["input_ids"].tolist() == [[101, 102]]


def test_cut_token_counts():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = [("a", None), ("a a a a", None), ("a a a", "a"), ("a a a", "a a a"), ("", None)]
    examples = [InputExample("", *pair) for pair in texts]
    # There is room for three tokens of a single text, or two of a pair.
    assert convert_examples(examples, None, 5, tokenizer)[CUT_TOKENS].tolist() == [0, 1, 2, 4, 0]
    windowed = convert_examples(examples, None, 5, tokenizer, windows=True)
    # For the pair of 3 + 3 tokens, two of the second text's are in none of the five windows.
    assert windowed[CUT_TOKENS].tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]
    assert "label_ids" not in windowed


def test_tokens_omitted_from_all_windows_count_once():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    examples = [InputExample("", "a " * 200), InputExample("", "a " * 100, "a " * 90)]
    cut = convert_examples(examples, None, 32, tokenizer, windows=True)[CUT_TOKENS]
    # The second text keeps half of the 29 available tokens.
    assert sorted(cut.tolist(), reverse=True)[:2] == [90 - 14, 0]
    assert convert_examples(examples[:0], None, 32, tokenizer, windows=True)[CUT_TOKENS].size == 0
