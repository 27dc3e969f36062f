"""Character spans of tokens."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import tokenize_with_offsets
from tests.oracle import golden
from tests.tokenization.test_tokenization import BOTH_CASINGS


@cache
def load_tokenizer(lower: bool = True) -> FullTokenizer:
    return FullTokenizer(str(golden("vocab/uncased.txt")), do_lower_case=lower)


def tokens_with_source(text: str) -> list[tuple[str, str]]:
    """Returns each token and the characters that it spans."""
    tokens, spans = tokenize_with_offsets(load_tokenizer(), text)
    return [(token, text[start:end]) for token, (start, end) in zip(tokens, spans, strict=True)]


def test_spans_index_the_original_text():
    sources = [source for _, source in tokens_with_source("  The Café,\tunwanted\u200b 北京")]
    assert "".join(sources) == "TheCafé,unwanted北京"
    assert sources[0] == "The"


def test_unknown_token_spans_the_word():
    assert tokens_with_source("the \U0001f600x the")[1] == ("[UNK]", "\U0001f600x")
    assert tokens_with_source("a" * 201) == [("[UNK]", "a" * 201)]


def test_dropped_characters_are_spanned_only_inside_tokens():
    assert tokens_with_source("\u0301a\u0301 \0t\0h\0e\0") == [("a", "a"), ("the", "t\0h\0e")]


def test_reordered_combining_marks_share_a_span():
    # U+302E and U+16FF0 (combining classes 224 and 6) are not in the dropped category Mn.
    spans = tokenize_with_offsets(load_tokenizer(), "a\u302e\U00016ff0 the")[1]
    assert spans[0] == (0, 3)
    assert spans[-1] == (4, 7)


@BOTH_CASINGS
@settings(max_examples=300, deadline=None)
@example(text="ΑΣ ΑΣΑ \u0130stanbul \uac00 ﬁ")
@example(text="\ud800a\u0344\u0f73b")
@given(text=st.text(max_size=60))
def test_spans_are_ordered_and_match_tokens(text, lower):
    tokenizer = load_tokenizer(lower)
    tokens, spans = tokenize_with_offsets(tokenizer, text)
    assert tokens == tokenizer.tokenize(text)
    assert len(spans) == len(tokens)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert sorted(spans) == spans
    for token, (start, end) in zip(tokens, spans, strict=True):
        if not lower and token != "[UNK]":
            [word] = tokenizer.basic_tokenizer.tokenize(text[start:end])
            assert word == token.removeprefix("##")


def test_bytes_are_decoded():
    assert tokenize_with_offsets(load_tokenizer(), b"the \xff the")[1] == [(0, 3), (5, 8)]
    with pytest.raises(ValueError, match="must be str or bytes"):
        tokenize_with_offsets(load_tokenizer(), 3)
