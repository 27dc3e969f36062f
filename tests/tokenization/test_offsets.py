"""Token spans in the original text."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.offsets import tokenize_with_offsets
from tests.oracle import golden
from tests.tokenization.test_reference import BOTH_CASINGS


@cache
def tokenizer(lower: bool = True) -> FullTokenizer:
    return FullTokenizer(str(golden("vocab/uncased.txt")), do_lower_case=lower)


def parts(text: str) -> list[tuple[str, str]]:
    tokens, spans = tokenize_with_offsets(tokenizer(), text)
    return [(token, text[a:b]) for token, (a, b) in zip(tokens, spans, strict=True)]


def test_spans_index_the_original_text():
    words = [source for _, source in parts("  The Café,\tunwanted\u200b 北京")]
    assert "".join(words) == "TheCafé,unwanted北京"
    assert words[0] == "The"


def test_unknown_token_spans_its_word():
    assert parts("the \U0001f600x the")[1] == ("[UNK]", "\U0001f600x")
    assert parts("a" * 201) == [("[UNK]", "a" * 201)]


def test_dropped_characters_are_only_spanned_inside_tokens():
    assert parts("\u0301a\u0301 \0t\0h\0e\0") == [("a", "a"), ("the", "t\0h\0e")]


def test_reordered_combining_marks_share_a_span():
    # U+302E (class 224) and U+16FF0 (class 6) are not in the dropped category Mn.
    spans = tokenize_with_offsets(tokenizer(), "a\u302e\U00016ff0 the")[1]
    assert spans[0] == (0, 3)
    assert spans[-1] == (4, 7)


@BOTH_CASINGS
@settings(max_examples=300, deadline=None)
@example(text="ΑΣ ΑΣΑ \u0130stanbul \uac00 ﬁ")
@example(text="\ud800a\u0344\u0f73b")
@given(text=st.text(max_size=60))
def test_token_spans_are_ordered(text, lower):
    with_tokenizer = tokenizer(lower)
    tokens, spans = tokenize_with_offsets(with_tokenizer, text)
    assert tokens == with_tokenizer.tokenize(text)
    assert len(spans) == len(tokens)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert sorted(spans) == spans
    for token, (start, end) in zip(tokens, spans, strict=True):
        if not lower and token != "[UNK]":
            [word] = with_tokenizer.basic_tokenizer.tokenize(text[start:end])
            assert word == token.removeprefix("##")


def test_bytes_are_decoded():
    assert tokenize_with_offsets(tokenizer(), b"the \xff the")[1] == [(0, 3), (5, 8)]
    with pytest.raises(ValueError, match="must be str or bytes"):
        tokenize_with_offsets(tokenizer(), 3)
