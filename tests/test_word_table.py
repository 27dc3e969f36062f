"""Words found again: the same ids whatever was seen before, and however full the tables are."""

import random
import string

import numpy as np
import pytest

from bert_tf import word_table
from bert_tf.alphabet import Alphabet
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.token_ids import TokenIds
from bert_tf.tokenization import BasicTokenizer, FullTokenizer
from bert_tf.word_table import WordTable
from tests.oracle import golden

VOCAB_SIZE = 50


def pieces(word: str) -> list[int]:
    """Ids of a word: as many as it has vowels, and one if it has none."""
    first = sum(map(ord, word)) % VOCAB_SIZE
    return [(first + n) % VOCAB_SIZE for n in range(sum(char in "aeiou" for char in word) or 1)]


class Words:
    """Cuts words, and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, words: list[bytes]) -> TokenIds:
        self.count += len(words)
        return TokenIds.from_lists([pieces(word.decode()) for word in words])


def table(lower: bool = True) -> tuple[WordTable, Words]:
    words = Words()
    return WordTable(Alphabet(BasicTokenizer(lower), Words()), words, VOCAB_SIZE), words


def expected(text: str, lower: bool = True) -> list[int]:
    return [n for word in BasicTokenizer(lower).tokenize(text) for n in pieces(word)]


def assert_right(tested: WordTable, texts: list[str], lower: bool = True) -> None:
    found = tested.encode(texts)
    assert found.ids.dtype == np.int32
    assert found.row_splits.dtype == np.int64
    assert len(found) == len(texts)
    wrong = [text for row, text in enumerate(texts) if found[row].tolist() != expected(text, lower)]
    assert wrong == []


def random_texts(rng: random.Random, count: int) -> list[str]:
    """Texts of words of 1 to 20 characters, many of which end or begin in the same way."""

    def word() -> str:
        if rng.random() < 0.1:
            return rng.choice([*string.punctuation, "", " ", "\t", "\n", "\0", "\x7f"])
        core = "".join(rng.choices("aBx1", k=rng.choice([1, 2, 3, 7, 8, 9])))
        return core + rng.choice(["", "", "endings", "longer_endings", "abcdefghijk"])

    return [
        rng.choice(["", " "]).join(word() for _ in range(rng.randrange(9))) for _ in range(count)
    ]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("bits", [(17, 16), (7, 3)])
def test_any_texts(monkeypatch, bits, lower):
    # With few places most words find theirs taken, and all is forgotten again and again.
    monkeypatch.setattr(word_table, "_FIRST_BITS", bits[0])
    monkeypatch.setattr(word_table, "_SECOND_BITS", bits[1])
    tested, _ = table(lower)
    rng = random.Random(1)
    for _ in range(30):
        assert_right(tested, random_texts(rng, 100), lower)


def test_words_of_every_length_around_each_other():
    tested, _ = table()
    words = ["abcdefghijklmnopqrstuvwxyz"[-n:] for n in range(1, 27)]
    words += ["zyxwvutsrqponmlkjihgfedcba"[:n] for n in range(1, 27)]
    for texts in (
        [" ".join(words)],
        words,
        [f"{word}.{word}" for word in words],
        ["", words[9], ""],
    ):
        assert_right(tested, texts)


def test_a_word_is_cut_once():
    tested, words = table()
    texts = ["one two eleventeen " + "very" * 10, "two. one"]
    tested.encode(texts)
    assert words.count == 4
    tested.encode(texts)
    assert words.count == 4


def test_all_is_forgotten_when_there_are_too_many_words(monkeypatch):
    monkeypatch.setattr(word_table, "_FIRST_BITS", 7)
    tested, words = table()
    texts = [f"word{n}" for n in range(65)]
    tested.encode(texts)
    assert words.count == 65
    assert_right(tested, texts[:10])
    assert words.count == 75
    assert_right(tested, texts[:10])
    assert words.count == 75


def test_characters_that_have_a_byte():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    found = tokenizer._alphabet.simplify(
        ["É“a”\u00a0b\u200b", "fine", "œ", "a中", "\ud800", "😀", "’"]
    )
    assert found[1] == "fine"
    assert found[2:6] == [None] * 4
    assert found[0][0] == "e"
    # Left, right, and single quotation marks are three signs.
    assert len({found[0][1], found[0][3], found[6]}) == 3
    texts = ["É“a”\u00a0b\u200b’s", "no œ", "“Ça ne va pas, ”", ""]
    ids = tokenizer.encode(texts)
    for row, text in enumerate(texts):
        tokens = tokenizer.reference.tokenize(text)
        assert ids[row].tolist() == tokenizer.reference.convert_tokens_to_ids(tokens)


def test_more_punctuation_than_there_are_bytes():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    signs = [
        char
        for char in map(chr, range(128, 0x3400))
        if BasicTokenizer().tokenize(f"a{char}b")[1:2] == [char]
    ]
    assert len(signs) > 128
    texts = [f"word{sign}word" for sign in signs]
    ids = tokenizer.encode(texts)
    for row, text in enumerate(texts):
        tokens = tokenizer.reference.tokenize(text)
        assert ids[row].tolist() == tokenizer.reference.convert_tokens_to_ids(tokens)
