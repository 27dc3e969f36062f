"""Words found again: the same ids whatever was seen before, and however full the tables are."""

import random
import string
import threading

import numpy as np
import pytest

from bert_tf import batch_tokenization, word_table
from bert_tf.alphabet import BETWEEN, BORDER, SPACE, Alphabet
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.token_ids import TokenIds
from bert_tf.tokenization import BasicTokenizer, FullTokenizer, is_punctuation
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

    def __call__(self, words: list[str]) -> TokenIds:
        self.count += len(words)
        return TokenIds.from_lists([*map(pieces, words)])


class Table:
    """A table with its alphabet."""

    def __init__(self, lower: bool = True):
        self.words = Words()
        self.alphabet = Alphabet(BasicTokenizer(lower), Words())
        self.table = WordTable(
            self.alphabet.sign_ids,
            lambda words: self.words(self.alphabet.decode(words)),
            VOCAB_SIZE,
        )

    def encode(self, texts: list[str]) -> TokenIds:
        text, others = self.alphabet.encode(BETWEEN.join(texts))
        assert others == []
        return self.table.encode(text)


def expected(text: str, lower: bool = True) -> list[int]:
    return [n for word in BasicTokenizer(lower).tokenize(text) for n in pieces(word)]


def assert_right(tested: Table, texts: list[str], lower: bool = True) -> None:
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
            return rng.choice([*string.punctuation, "", " ", "\t", "\n", "\x01", "\x7f"])
        core = "".join(rng.choices("aBx1", k=rng.choice([1, 2, 3, 7, 8, 9])))
        return core + rng.choice(["", "", "endings", "longer_endings", "abcdefghijk"])

    return [
        rng.choice(["", " "]).join(word() for _ in range(rng.randrange(9))) for _ in range(count)
    ]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("limits", [(17, 18, 1 << 16), (7, 3, 1 << 16), (7, 3, 64)])
def test_any_texts(monkeypatch, limits, lower):
    # With few places most words find theirs taken; with few words most are not learnt.
    for name, limit in zip(("_FIRST_BITS", "_SECOND_BITS", "_MOST_WORDS"), limits, strict=True):
        monkeypatch.setattr(word_table, name, limit)
    tested = Table(lower)
    rng = random.Random(1)
    for _ in range(30):
        assert_right(tested, random_texts(rng, 100), lower)


def test_words_of_every_length_around_each_other():
    tested = Table()
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
    tested = Table()
    texts = ["one two eleventeen " + "very" * 10, "two. one"]
    tested.encode(texts)
    assert tested.words.count == 4
    tested.encode(texts)
    assert tested.words.count == 4


def test_a_full_table_learns_no_more_and_starts_anew_in_the_end(monkeypatch):
    monkeypatch.setattr(word_table, "_MOST_WORDS", 64)
    tested = Table()
    first = [f"first{n}" for n in range(64)]
    tested.encode(first)
    assert tested.words.count == 64
    for count in range(64 + 100, 64 + 600, 100):
        assert_right(tested, [f"word{n} aeiou{n}" for n in range(50)] + first)
        assert tested.words.count == count
    # More than 8 times 64 were met.
    assert_right(tested, [f"more{n}" for n in range(50)])
    assert_right(tested, [f"even{n}" for n in range(50)])
    assert_right(tested, first)
    assert tested.words.count == 564 + 100 + 64


def test_long_words_are_not_kept():
    tested = Table()
    tested.encode(["x" * 1_000_000, "é" * 300, "y" * 200])
    assert sorted(map(len, tested.table._values)) == [200, 201, 201]


def test_a_long_word_needs_no_compiled_code(monkeypatch):
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    monkeypatch.setattr(batch_tokenization, "fast_wordpiece", None)
    assert_as_reference(tokenizer, ["x" * 200_000])


def test_bytes_after_many_texts(monkeypatch):
    monkeypatch.setattr(batch_tokenization, "_TEXTS_TOGETHER", 10)
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = ["a film", "ein Füßchen", "中"] * 20
    assert_as_reference(tokenizer, [*texts, b"f\xc3\xbc\xff", "a", "中".encode()])
    with pytest.raises(ValueError, match="not int"):
        tokenizer.encode([*texts, 5])


def test_a_list_that_changes_meanwhile(monkeypatch):
    monkeypatch.setattr(batch_tokenization, "_TEXTS_TOGETHER", 2)
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = ["the end"] * 6
    encode = tokenizer._alphabet.encode

    def clearing(joined):
        texts.clear()
        return encode(joined)

    tokenizer._alphabet.encode = clearing
    assert len(tokenizer.encode(texts)) == 6


@pytest.mark.parametrize("compiled", [True, False])
def test_texts_of_mostly_new_words_pass_the_table(monkeypatch, compiled):
    monkeypatch.setattr(batch_tokenization, "_TIME_TO_COMPILE", 0 if compiled else 1e18)
    monkeypatch.setattr(batch_tokenization, "_MANY_NEW_WORDS", 20)
    monkeypatch.setattr(batch_tokenization, "_TEXTS_TOGETHER", 10)
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = [f"New{n:x} words{n}, É{n}. " for n in range(1000)] + ["the same words again"] * 1000
    assert_as_reference(tokenizer, texts)
    (table,) = tokenizer._word_tables
    # Of 100 portions of new words 6 were learnt: one, and then 16 passed the table, and so on.
    assert 6 * 20 <= len(table._values) <= 6 * 40
    assert table.new_words == 0
    assert_as_reference(tokenizer, texts)


def test_threads_that_start_with_nothing():
    # Each with punctuation that the others have not, all at once, some with spans.
    barrier = threading.Barrier(4)
    for trial in range(10):
        tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
        signs = [char for char in map(chr, range(0x2010, 0x2060)) if is_punctuation(char)]
        parts = [[f"a{sign}b é" for sign in signs[n::4]] + ["the end"] * n for n in range(4)]
        found: dict[int, TokenIds] = {}

        def work(n: int, with_spans: bool, tokenizer=tokenizer, parts=parts, found=found) -> None:
            barrier.wait()
            found[n] = tokenizer.encode(parts[n], with_spans=with_spans)

        threads = [threading.Thread(target=work, args=(n, n == trial % 5)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n, texts in enumerate(parts):
            assert [found[n][row].tolist() for row in range(len(texts))] == ids_of(tokenizer, texts)


def ids_of(tokenizer: BatchTokenizer, texts: list[str]) -> list[list[int]]:
    reference = tokenizer.reference
    return [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]


def assert_as_reference(tokenizer: BatchTokenizer, texts: list[str]) -> None:
    ids = tokenizer.encode(texts)
    assert [ids[row].tolist() for row in range(len(texts))] == ids_of(tokenizer, texts)


def test_characters_that_have_a_byte():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    texts = ["É“a”\u00a0b\u200b", "fine\x7f", "Œœ£", "a中", "\ud800", "’"]
    found, others = tokenizer._alphabet.encode(BETWEEN.join(texts))
    first, second, letters, *rest = found[:-1].split(bytes([BORDER]))
    assert (second, rest[:2]) == (b"fine", [b""] * 2)
    assert others == [3, 4]
    assert tokenizer._alphabet.decode([letters, b"x", second]) == ["œœ£", "x", "fine"]
    assert (first[0:1], first[2:3], first[4], first[5:]) == (b"e", b"a", SPACE, b"b")
    # Left, right, and single quotation marks are three signs.
    assert len({first[1], first[3], rest[2][0]}) == 3
    texts = ["É“a”\u00a0b\u200b’s", "no œ; £5", "“Ça ne va pas, ”", ""]
    assert_as_reference(tokenizer, texts)


def test_nul_is_dropped():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    for texts in (["a\0b", "c", "\0", "", "d é\0"], ["\0"], ["\0\0 中", "a"]):
        assert_as_reference(tokenizer, texts)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("time", [0, 1e18])
def test_more_letters_than_there_are_bytes(monkeypatch, lower, time):
    monkeypatch.setattr(batch_tokenization, "_TIME_TO_COMPILE", time)
    letters = [chr(code) for code in range(0xA1, 0x250)]
    texts = [f"new{letter}word {letter} {n}" for n, letter in enumerate(letters)]
    texts += ["é" * 199 + "word", "é" * 200, "é" * 201, "œ" * 200, "œ" * 201]
    for kind in ("cased", "uncased"):
        tokenizer = BatchTokenizer(FullTokenizer(str(golden(f"vocab/{kind}.txt")), lower))
        assert_as_reference(tokenizer, texts)
        assert_as_reference(tokenizer, texts[::-1])


def test_more_punctuation_than_there_are_bytes():
    tokenizer = BatchTokenizer(FullTokenizer(str(golden("vocab/uncased.txt"))))
    signs = [
        char
        for char in map(chr, range(128, 0x3400))
        if BasicTokenizer().tokenize(f"a{char}b")[1:2] == [char]
    ]
    assert len(signs) > 128
    texts = [f"word{sign}word" for sign in signs]
    assert_as_reference(tokenizer, texts)
