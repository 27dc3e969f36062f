"""Texts of any length: the results of Python's methods, in linear time."""

import re
import sys
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf import tokenization
from bert_tf.tasks.token_classification.windows import split_words
from bert_tf.tokenization import BasicTokenizer, FullTokenizer, decompose
from bert_tf.tokenization.fast import tokenize_with_offsets
from tests.oracle import golden
from tests.tokenization.test_tokenization import (
    ANY_TEXT,
    AWKWARD_CHARACTERS,
    BOTH_CASINGS,
    NO_DEADLINE,
    assert_matches_golden,
    tokenize_step_by_step,
)

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1)]
MARKS = [char for char in CHARACTERS if unicodedata.combining(char)]
DECOMPOSED = [char for char in CHARACTERS if unicodedata.normalize("NFD", char) != char]
# Each decomposes to two marks.
DOUBLE_MARKS = "\u0344\u0f73\u0f75\u0f81"
MARKED_TEXT = st.text(
    st.sampled_from(MARKS)
    | st.sampled_from(MARKS[:100])
    | st.sampled_from(DECOMPOSED)
    | st.sampled_from(DOUBLE_MARKS + AWKWARD_CHARACTERS + "\u1e69\u1100\u1161\u11a8\U0001d15e")
)


MARK = tokenization._MANY_MARKS.pattern.removesuffix("{16,}")


@pytest.fixture(autouse=True)
def _sort_all_marks(request, monkeypatch):
    if "kind" not in request.fixturenames:
        monkeypatch.setattr(tokenization, "_MANY_MARKS", re.compile(MARK + "+"))


@NO_DEADLINE
@given(text=MARKED_TEXT | ANY_TEXT)
def test_the_decomposition_is_that_of_python(text):
    assert decompose(text) == unicodedata.normalize("NFD", text)


def test_all_marks_are_sorted():
    others = [unicodedata.normalize("NFD", x) for x in CHARACTERS if not re.match(MARK, x)]
    assert len(others) > 100_000
    assert not [text for text in others if unicodedata.combining(text[0])]


NUM_CHARS = 120_000


@pytest.mark.parametrize(
    "kind",
    ["\u0316\u0301", "\u0344", "\U0001d15e", "\u302e\u034f\u0316", "Σ\u0301'"],
    ids=ascii,
)
def test_any_marks_take_linear_time(kind):
    tokenizer = FullTokenizer(str(golden("vocab/uncased.txt")))
    repeated = NUM_CHARS // len(kind)
    for text in ("a" + kind * repeated, "".join(char * repeated for char in kind[::-1])):
        assert cpu_seconds(tokenizer.tokenize, text) < 5
        assert cpu_seconds(tokenize_with_offsets, tokenizer, text) < 5


@pytest.mark.parametrize("kind", ["!", "\u0301", "'s", "_"], ids=ascii)
def test_a_long_word_is_split_in_linear_time(kind):
    text = "a" + kind * (NUM_CHARS // len(kind))
    assert cpu_seconds(split_words, text + "a") < 5
    assert "".join(split_words(text)) == text


def cpu_seconds(function: Callable, *args) -> float:
    start = time.thread_time()
    function(*args)
    return time.thread_time() - start


@BOTH_CASINGS
def test_golden_texts_with_sorted_marks_match_the_original(lower):
    assert_matches_golden(BasicTokenizer(lower).tokenize, "basic_lower" if lower else "basic_cased")


@BOTH_CASINGS
@NO_DEADLINE
@given(text=MARKED_TEXT)
def test_tokens_of_marks_match_step_by_step_rules(lower, text):
    assert BasicTokenizer(lower).tokenize(text) == tokenize_step_by_step(text, lower)
