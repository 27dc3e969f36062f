"""Batch conversion of examples, compared with the original and with `pack`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.features import InputExample, pack, truncate_to_fit
from bert_tf.data.packing import CUT_TOKENS, convert_examples, label_ids_of, pack_batch
from bert_tf.errors import UserError
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds
from tests.data import CONVERSIONS
from tests.data.test_features import load_conversions, load_inputs
from tests.oracle import golden


@pytest.mark.parametrize("name", CONVERSIONS)
def test_batch_conversion_matches_the_original(name):
    expected = np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False)
    conversion = load_conversions()[name]
    reference, task, examples = load_inputs(conversion)
    tokenizer = BatchTokenizer(reference)
    labels = label_ids_of(examples, task.labels)
    actual = convert_examples(examples, labels, conversion["max_seq_length"], tokenizer)
    assert (actual.pop(CUT_TOKENS) >= 0).all()
    # Without the padding examples that fill the last batch on a TPU.
    assert len(examples) == len(expected["label_ids"]) - conversion["num_padding_examples_at_end"]
    assert actual.keys() == set(expected.files)
    for key, values in actual.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[key][: len(examples)], key)


class IdentityTokenizer:
    """A tokenizer that maps each digit to its value."""

    def tokenize(self, text):
        return [int(digit) for digit in text]

    def convert_tokens_to_ids(self, tokens):
        return [{"[CLS]": 101, "[SEP]": 102}.get(token, token) for token in tokens]


IDS = st.lists(st.integers(1, 9), max_size=9)


@given(st.lists(st.tuples(IDS, IDS), max_size=5), st.integers(3, 16), st.booleans())
def test_batch_packing_matches_single_packing(pairs, max_seq_length, with_second):
    a = RaggedIds.from_lists([first for first, _ in pairs])
    b = RaggedIds.from_lists([second for _, second in pairs]) if with_second else None
    actual = pack_batch(a, b, max_seq_length, 101, 102)
    for row, (first, second) in enumerate(pairs):
        tokens_a, tokens_b = list(first), list(second) if with_second else None
        truncate_to_fit(tokens_a, tokens_b, max_seq_length)
        packed = pack(tokens_a, tokens_b, max_seq_length, IdentityTokenizer())
        for key, values in actual.items():
            assert values[row].tolist() == getattr(packed, key), key


def test_too_small_max_seq_length_is_rejected():
    ids = RaggedIds.from_lists([[7]])
    assert pack_batch(ids, None, 2, 101, 102)["input_ids"].tolist() == [[101, 102]]
    with pytest.raises(UserError, match="max_seq_length=2 is too small: the 3 special tokens"):
        pack_batch(ids, ids, 2, 101, 102)


def test_numeric_and_missing_labels():
    examples = [InputExample("1", "good", label="2.5"), InputExample("2", "bad", label="-1")]
    labels = label_ids_of(examples, [])
    assert labels.dtype == np.float32
    assert labels.tolist() == [2.5, -1.0]
    with pytest.raises(UserError, match=r"Label .2\.5. of example 1 is not one of yes, no"):
        label_ids_of(examples, ["yes", "no"])


def test_cut_token_counts():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = [("a", None), ("a a a a", None), ("a a a", "a"), ("a a a", "a a a"), ("", None)]
    examples = [InputExample("", *pair) for pair in texts]
    # Three tokens of a single text fit, or two of a pair.
    assert convert_examples(examples, None, 5, tokenizer)[CUT_TOKENS].tolist() == [0, 1, 2, 4, 0]
    windowed = convert_examples(examples, None, 5, tokenizer, windows=True)
    # The five windows of the 3 + 3 pair omit two tokens of its second text.
    assert windowed[CUT_TOKENS].tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]
    assert "label_ids" not in windowed


def test_tokens_outside_all_windows_are_counted_once():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    examples = [InputExample("", "a " * 200), InputExample("", "a " * 100, "a " * 90)]
    cut = convert_examples(examples, None, 32, tokenizer, windows=True)[CUT_TOKENS]
    # The second text keeps half of the 29 available tokens.
    assert sorted(cut.tolist(), reverse=True)[:2] == [90 - 14, 0]
    assert convert_examples(examples[:0], None, 32, tokenizer, windows=True)[CUT_TOKENS].size == 0
