"""The compiled tokenizer, compared with the reference and the original."""

import builtins
import itertools
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import BasicTokenizer, FullTokenizer, fast, fast_wordpiece
from bert_tf.tokenization.fast import BatchTokenizer, tokenize_with_offsets
from bert_tf.tokenization.ragged_ids import RaggedIds
from tests.oracle import golden
from tests.tokenization.test_tokenization import BOTH_CASINGS, golden_texts


class SplitsAtWhitespace(BasicTokenizer):
    def normalize(self, text: str) -> str:
        return text


VOCABULARIES = ["uncased", "cased", "chinese"]
# Published models do not use the slow combinations.
RANDOM_CASES = pytest.mark.parametrize(
    ("vocab", "lower"),
    [
        ("uncased", True),
        ("cased", False),
        ("chinese", True),
        pytest.param("uncased", False, marks=pytest.mark.slow),
        pytest.param("cased", True, marks=pytest.mark.slow),
        pytest.param("chinese", False, marks=pytest.mark.slow),
    ],
)


@pytest.fixture(autouse=True)
def _compile_immediately(monkeypatch):
    monkeypatch.setattr(fast, "_COMPILE_CHARS", 0)


@cache
def load_reference(vocab: str, lower: bool) -> FullTokenizer:
    return FullTokenizer(str(golden(f"vocab/{vocab}.txt")), do_lower_case=lower)


@cache
def load_compiled(vocab: str, lower: bool) -> BatchTokenizer:
    return BatchTokenizer(load_reference(vocab, lower))


def reference_ids(tokenizer: FullTokenizer, strings) -> list[list[int]]:
    return [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in strings]


def as_lists(ids: RaggedIds) -> list[list[int]]:
    return [ids[row].tolist() for row in range(len(ids))]


@BOTH_CASINGS
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_ids_match_the_original_on_golden_texts(vocab, lower):
    strings = [text for text, _ in golden_texts()]
    tokenizer = load_compiled(vocab, lower)
    before = tokenizer.num_texts, tokenizer.num_reference_texts
    actual = as_lists(tokenizer.encode(strings))
    field = f"{vocab}_{'lower' if lower else 'nolower'}_ids"
    pairs = zip(golden_texts(), actual, strict=True)
    assert not [text for (text, item), ids in pairs if item[field] != ids]
    assert tokenizer.num_texts - before[0] == len(strings)
    # Most golden texts consist of difficult characters.
    assert tokenizer.num_reference_texts - before[1] < 0.15 * len(strings)


# ---- Random texts --------------------------------------------------------------------------

SPECIAL = "\0\t\n\r\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u2028\u2029\u200b\u3000\ufeff\ufffd"
SPECIAL += "\u03a3\u03c3\u03c2\u0130\u0131\u1e9e\u212a\u0345\u302e\uac00\ud800\U0001d165"
RANGES = [(32, 127), (128, 0x250), (0x300, 0x370), (0x370, 0x3000), (0x3000, 0x10000)]


def random_text(rng: random.Random, words: list[str]) -> str:
    def char() -> str:
        draw = rng.random()
        if draw < 0.1:
            return rng.choice(SPECIAL)
        first, last = (0, 0x110000) if draw < 0.2 else rng.choice(RANGES)
        return chr(rng.randrange(first, last))

    draw = rng.random()
    if draw < 0.4:
        return "".join(char() for _ in range(rng.randrange(30)))
    if draw < 0.8:
        parts = [rng.choice([rng.choice(words), char(), " "]) for _ in range(rng.randrange(20))]
        return "".join(parts)
    if draw < 0.97:
        return " ".join(rng.choices(words, k=rng.randrange(12)))
    long = rng.choice(["a", "É", "가", "\U00010428", "中", "a\u0301"]) * rng.randrange(60, 205)
    return f"{rng.choice(words)} {long}{rng.choice(words)}, {long} end"


@RANDOM_CASES
def test_ids_match_the_reference_on_random_texts(vocab, lower):
    tokenizer = load_compiled(vocab, lower)
    before = tokenizer.num_reference_texts
    rng = random.Random(f"{vocab} {lower}")
    words = [word.removeprefix("##") for word in tokenizer.reference.vocab]
    strings = [random_text(rng, words) for _ in range(2000)]
    expected = reference_ids(tokenizer.reference, strings)
    actual = as_lists(tokenizer.encode(strings))
    assert not [s for s, a, b in zip(strings, actual, expected, strict=True) if a != b]
    # The reference handles overlong words and rare characters.
    assert 0 < tokenizer.num_reference_texts - before < 0.2 * len(strings)


@settings(max_examples=200, deadline=None)
@example(["a" * 200, "a" * 201, "é" * 200, "é" * 201, "가" * 66, "가" * 67, ""])
@example(["x" * 150 + "." + "y" * 150, "中" * 300, "x" * 199 + "中" + "y" * 200])
@example(["ΑΣ ΑΣΑ", "\ud800", "a\u302e\u0301b"])
@given(st.lists(st.text(max_size=40), max_size=8))
def test_ids_match_the_reference_on_any_texts(strings):
    tokenizer = load_compiled("uncased", True)
    assert as_lists(tokenizer.encode(strings)) == reference_ids(tokenizer.reference, strings)


def test_plain_texts_do_not_need_the_reference():
    tokenizer = BatchTokenizer(load_reference("uncased", True))
    strings = ["Plain text.", "Füße, naïve café", "Привет, мир", "北京欢迎你", "한국어", "ไทย"]
    tokenizer.encode(strings)
    assert tokenizer.num_reference_texts == 0


def test_bytes_decode_like_the_reference():
    tokenizer = load_compiled("uncased", True)
    strings = [b"caf\xc3\xa9 \xff now", "now"]
    assert as_lists(tokenizer.encode(strings)) == reference_ids(tokenizer.reference, strings)
    with pytest.raises(ValueError, match="must be str or bytes"):
        tokenizer.encode([3])


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_batch_sizes(count):
    tokenizer = load_compiled("uncased", True)
    strings = [f"text {n % 7} é" if n % 3 else f"text {n % 7}" for n in range(count)]
    actual = tokenizer.encode(strings)
    assert len(actual) == count
    assert actual.ids.dtype == np.int32
    assert as_lists(actual) == reference_ids(tokenizer.reference, strings)


# ---- Token spans ---------------------------------------------------------------------------


@RANDOM_CASES
def test_spans_match_the_reference(vocab, lower):
    tokenizer = load_compiled(vocab, lower)
    rng = random.Random(f"spans {vocab} {lower}")
    words = [word.removeprefix("##") for word in tokenizer.reference.vocab]
    strings = [random_text(rng, words) for _ in range(1000)] + [text for text, _ in golden_texts()]
    actual = tokenizer.encode(strings, with_spans=True)
    assert as_lists(actual) == as_lists(tokenizer.encode(strings))
    assert actual.spans.dtype == np.int32
    splits = actual.row_splits.tolist()
    spans = [actual.spans[start:end].tolist() for start, end in itertools.pairwise(splits)]
    expected = [
        [list(span) for span in tokenize_with_offsets(tokenizer.reference, text)[1]]
        for text in strings
    ]
    assert not [s for s, a, b in zip(strings, spans, expected, strict=True) if a != b]


@pytest.mark.parametrize("strings", [[], [""], ["", " "], ["\ud800"], ["", "é a\u0301b\0c", ""]])
def test_spans_of_small_batches(strings):
    tokenizer = load_compiled("uncased", True)
    actual = tokenizer.encode(strings, with_spans=True)
    spans = [tokenize_with_offsets(tokenizer.reference, text)[1] for text in strings]
    assert actual.spans.tolist() == [list(span) for row in spans for span in row]
    assert len(actual) == len(strings)


# ---- Vocabularies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ["[PAD]", "[UNK]", "the", "the", "##re", "##re", "é"],
        ["[UNK]", "", "", "the", "##", "##re", "#", "e\u0301"],
        ["[PAD]", "[UNK]", "a" * 300, "##" + "é" * 200, "the"],
        ["[PAD]", "[UNK]", "the\0", "a\0b", "the", "##\x7f"],
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        ["[UNK]", " the ", "##re\r", "no token", "[4]", "\ufeffa", "[", "4", "##,", "a,"],
    ],
)
def test_vocabularies_with_duplicates_and_gaps(tmp_path, lines):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    strings = ["a" * 150, "a" * 300, "aé" * 100, "the\0re ab a\0b"]
    strings += ["there the re # é e\u0301 no token [4] [UNK] ##re ## a, the,", "zzz", "Thé"]
    for lower in (True, False):
        tokenizer = FullTokenizer(str(path), lower)
        actual = as_lists(BatchTokenizer(tokenizer).encode(strings))
        assert actual == reference_ids(tokenizer, strings)


def tokenizer_of(tmp_path, pieces):
    path = tmp_path / "vocab.txt"
    path.write_text(pieces.replace(" ", "\n") + "\n")
    return BatchTokenizer(FullTokenizer(str(path)))


def test_vocabulary_without_unk_raises_key_error(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "the ##re")
    assert as_lists(tokenizer.encode(["there", "the"])) == [[0, 1], [0]]
    with pytest.raises(KeyError):
        tokenizer.encode(["other"])


# ---- Fallback without TensorFlow Text, threads, imports ------------------------------------


def test_fallback_without_tensorflow_text_warns_once(monkeypatch, run_log):
    import_module = builtins.__import__

    def fail_for_tensorflow_text(name, *args, **kwargs):
        if name == "tensorflow_text":
            raise ImportError("no wheel for this system")
        return import_module(name, *args, **kwargs)

    fast_wordpiece.tensorflow_text.cache_clear()
    monkeypatch.setattr(builtins, "__import__", fail_for_tensorflow_text)
    tokenizer = BatchTokenizer(load_reference("uncased", True))
    strings = ["plain", "Füße, 北京"]
    assert as_lists(tokenizer.encode(strings)) == reference_ids(tokenizer.reference, strings)
    actual = tokenizer.encode(strings, with_spans=True)
    assert actual.spans[-1, 1] == len(strings[-1])
    assert (tokenizer.num_reference_texts, tokenizer.num_texts) == (4, 4)
    BatchTokenizer(load_reference("cased", False)).encode(strings)
    fast_wordpiece.tensorflow_text.cache_clear()
    (message,) = [message for message in run_log.messages if "TensorFlow Text" in message]
    assert "no wheel for this system" in message


def test_tokenizer_is_thread_safe():
    tokenizer = BatchTokenizer(load_reference("uncased", True))
    parts = [[f"{chr(code)} ж {chr(code + 1)}" for code in range(n, n + 700)] for n in range(8)]
    with ThreadPoolExecutor(len(parts)) as pool:
        actual = [*pool.map(tokenizer.encode, parts)]
    for strings, ids in zip(parts, actual, strict=True):
        assert as_lists(ids) == reference_ids(tokenizer.reference, strings)


def test_small_batches_do_not_compile():
    path = golden("vocab/uncased.txt")
    code = f"""
import sys
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization import FullTokenizer
tokenizer = BatchTokenizer(FullTokenizer({str(path)!r}))
for with_spans in (False, True):
    ids = tokenizer.encode(["good", "Füße, 北京", "“é”"], with_spans=with_spans)
    assert len(ids) == 3
assert tokenizer.num_reference_texts == 6
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_mostly_unknown_tokens_are_reported(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "[PAD] [UNK] [CLS] [SEP] the film")
    known = [("the film", "the film")] * 30
    # 5 unknown of 104 tokens, and a file of few tokens, all unknown.
    texts = [*known[:-6], ("the plot",) * 4, ("plot",)]
    assert list(tokenizer.check_texts("a.txt", texts)) == []
    assert list(tokenizer.check_texts("b.txt", [("plot plot", "story")])) == []
    texts = [*known, ("plot " * 7,), ("story plot",)]
    assert list(tokenizer.check_texts("c.txt", texts)) == [
        "c.txt: 7.0% of the tokens (9 of 129) are [UNK]; most frequent words: plot, story. Check "
        "the vocabulary, --do_lower_case and the file's encoding"
    ]
    # With many texts, only a sample is tokenized.
    (*_, problem) = tokenizer.check_texts("d.txt", [*known * 100, *[("plot",)] * 3000])
    assert "d.txt: 20.0% of the tokens (1000 of 5000) are [UNK]" in problem


def test_texts_are_checked_by_column(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "[UNK] the film")
    good = [("the film", "the film")] * 5
    for second in ("17", "18"):  # only the first text of a row is probably not a number
        assert not [*tokenizer.check_texts("a.txt", [("the film", second)] * 4)]
    (problem,) = tokenizer.check_texts("a.txt", [*good, ("the film", "the film [SEP]")])
    assert problem.startswith("a.txt: 1 of 6 other texts has [CLS] or [SEP]")
    (problem,) = tokenizer.check_texts("a.txt", [*good, ("\ufffd", "\ufffd")])
    assert "1 of 6 texts has no word pieces, such as '\ufffd \ufffd'" in problem


def test_invalid_argument_types_are_rejected(tmp_path):
    with pytest.raises(TypeError, match=r"a FullTokenizer. Received: 'vocab.txt'"):
        BatchTokenizer("vocab.txt")
    for text in ("the", b"the"):
        with pytest.raises(TypeError, match="texts must be a list of texts"):
            tokenizer_of(tmp_path, "[UNK] the").encode(text)


def test_ids_match_the_reference_if_only_whitespace_separates_words():
    reference = FullTokenizer(str(golden("vocab/cased.txt")), do_lower_case=False)
    reference.basic_tokenizer = SplitsAtWhitespace(do_lower_case=False)
    tokenizer = BatchTokenizer(reference)
    rng = random.Random(0)
    words = [word.removeprefix("##") for word in reference.vocab]
    strings = [random_text(rng, words) for _ in range(2000)]
    assert as_lists(tokenizer.encode(strings)) == reference_ids(reference, strings)
    # Texts with punctuation need the reference.
    assert 0 < tokenizer.num_reference_texts < len(strings)
