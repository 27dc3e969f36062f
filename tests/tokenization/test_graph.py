"""The in-graph tokenizer, compared with the reference."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.packing import pack_batch
from bert_tf.saved_models.modules import pack
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.graph import GraphTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds
from tests.oracle import golden
from tests.tokenization.test_tokenization import golden_texts

# Lone surrogates have no UTF-8 encoding, so they cannot be inputs of a graph.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
AWKWARD = st.text(
    st.sampled_from(
        "ΣσςαΑaA.'’ \u0301\u0345\u0323\u302a\u302e\u302f\u00ad\u2028\u3000字İßﬁÅ각ᄀ\t\0\x1c"
    ),
    max_size=30,
)


@pytest.fixture(scope="module", params=["uncased", "cased", "chinese"])
def vocab(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizers(vocab):
    reference = FullTokenizer(str(golden(f"vocab/{vocab}.txt")), do_lower_case=vocab != "cased")
    graph = GraphTokenizer(reference)
    spec = tf.TensorSpec([None], tf.string)
    return reference, tf.function(graph.__call__, input_signature=[spec])


def assert_same_ids(tokenizers, texts):
    reference, graph = tokenizers
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    actual = graph(tf.constant(encoded, tf.string)).to_list()
    expected = [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
    assert actual == expected


@settings(max_examples=200)
@given(texts=st.lists(TEXTS | AWKWARD, min_size=1, max_size=8))
def test_ids_match_the_reference_on_any_texts(tokenizers, texts):
    assert_same_ids(tokenizers, texts)


def test_ids_match_the_reference_on_awkward_texts(tokenizers):
    rng = random.Random(7)
    ranges = [range(32, 127), range(0x300, 0x530), range(0x900, 0xE00), range(0x1D00, 0x2100)]
    ranges += [range(0x3000, 0x3200), range(0x4E00, 0x4F00), range(0xAC00, 0xAD00)]
    ranges += [range(0xF900, 0xFB10), range(0x1D100, 0x1D200), range(0xE000)]
    texts = []
    for _ in range(1000):
        codes = [rng.choice(rng.choice(ranges)) for _ in range(rng.randint(0, 40))]
        text = "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)
        ends = ["", "Σ", " ΑΣ", "x" * 199, "x" * 200, "x" * 201, "é" * 201]
        texts.append(text + rng.choice(ends))
    assert_same_ids(tokenizers, texts)


def encoded_golden_texts():
    """Returns the golden inputs as UTF-8, which lone surrogates do not have, and their results."""
    has_surrogate = re.compile("[\ud800-\udfff]").search
    return [
        (text if isinstance(text, bytes) else text.encode(), result)
        for text, result in golden_texts()
        if isinstance(text, bytes) or not has_surrogate(text)
    ]


def test_ids_match_the_original(vocab, tokenizers):
    field = f"{vocab}_{'nolower' if vocab == 'cased' else 'lower'}_ids"
    texts, results = zip(*encoded_golden_texts(), strict=True)
    actual = tokenizers[1](tf.constant(texts)).to_list()
    assert actual == [result[field] for result in results]


def test_pieces_of_unusual_vocabularies(tmp_path):
    """Punctuation and ## in pieces, duplicates, long pieces, and a greedy match that fails."""
    pieces = ["[UNK]", "a", "##", "##a", "#", "ab", "##b##", "a,b", "##c", "a", "abcd"]
    pieces += ["", "x" * 150]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    texts = ["##", "##a", "aab", "ab##", "a,b", "abc", "abcx", "abcd", "x" * 151, "x" * 150 + "a"]
    for pretokenized in (False, True):
        reference = FullTokenizer(str(path), pretokenized=pretokenized)
        assert_same_ids((reference, GraphTokenizer(reference)), [*texts, " ".join(texts)])


@settings(max_examples=100)
@given(texts=st.lists(st.binary(max_size=12) | TEXTS.map(str.encode), min_size=1, max_size=8))
def test_ids_match_the_reference_on_any_bytes(tokenizers, texts):
    assert_same_ids(tokenizers, texts)


def test_empty_and_invalid_texts(tokenizers):
    assert_same_ids(tokenizers, [""])
    assert_same_ids(tokenizers, ["", " ", "\t\n", "a", "\u200b", ""])
    reference, graph = tokenizers
    assert graph(tf.constant([], tf.string)).to_list() == []
    # Invalid UTF-8 is dropped, as in the original.
    actual = graph(tf.constant([b"caf\xe9 a", b"\xff\xfe"])).to_list()
    assert actual == [reference.convert_tokens_to_ids(reference.tokenize("caf a")), []]


IDS = st.lists(st.integers(1, 9), max_size=9)


@settings(max_examples=60)
@given(st.lists(st.tuples(IDS, IDS), max_size=5), st.integers(3, 16), st.booleans(), st.booleans())
def test_packing_matches_array_packing(pairs, max_seq_length, with_second, padded):
    texts = [[first for first, _ in pairs], [second for _, second in pairs]]
    arrays = [RaggedIds.from_lists(ids) for ids in texts]
    ragged = [tf.ragged.constant(ids, tf.int32, ragged_rank=1) for ids in texts]
    expected = pack_batch(arrays[0], arrays[1] if with_second else None, max_seq_length, 101, 102)
    second = ragged[1] if with_second else None
    actual = pack(ragged[0], second, max_seq_length, 101, 102, padded)
    longest = max_seq_length if padded else int(expected["input_mask"].sum(1).max(initial=2))
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values[:, :longest], name)
