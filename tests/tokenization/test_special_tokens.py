"""Special tokens, `strip_accents` and `pretokenized`: equal ids in all tokenizers."""

import json

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.options.registry import SCRIPTS
from bert_tf.options.shared import TokenizerOptions
from bert_tf.saved_models.exported_folder import tokenizer_json
from bert_tf.tokenization import FullTokenizer, fast
from bert_tf.tokenization.fast import BatchTokenizer, tokenize_with_offsets
from bert_tf.tokenization.graph import GraphTokenizer

WORDS = [*"abcdeüößıσςe1@$[]<>/-", "##a", "##b", "##e", "##ö", "##ü", "grö", "##ße", "gro", "über"]
VOCAB = [
    "[PAD]",
    *(f"[unused{n}]" for n in range(1, 7)),
    *("[UNK]", "[CLS]", "[SEP]", "[MASK]", "@GENE$"),
    *dict.fromkeys(WORDS),
    *("üb", "1-1"),
]
TOKENS = "[E1], [/E1], @GENE$, [E1]x=[unused5], (?i)Grö=[unused6], (?i)üb, 1-1"
KINDS = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "accents": {"do_lower_case": True, "strip_accents": False},
    "stripped": {"do_lower_case": False, "strip_accents": True},
    "words": {"pretokenized": True},
}
# Final sigmas are lower-cased by context in Python, but not by the package tokenizers.
PARTS = ["[E1]", "[/E1]", "@GENE$", "[E1]x", "[e1]", "größe", "GRO", "Über", "ÜB", "1-1", "_"]
PARTS += ["a", "B", " ", "[", "E", "."]
TEXTS = st.lists(st.sampled_from(PARTS) | st.text("aAbüÖıİ\u0301\u0323 1$@]字\t", max_size=4)).map(
    "".join
)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("special") / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module", params=KINDS)
def tokenizers(request, vocab_file):
    reference = FullTokenizer(vocab_file, special_tokens=TOKENS, **KINDS[request.param])
    signature = [tf.TensorSpec([None], tf.string)]
    graph = tf.function(GraphTokenizer(reference), input_signature=signature)
    return reference, BatchTokenizer(reference), graph


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@example(texts=["[E1]Anna[/E1] [E1]x @GENE$@GENE$", "", "[E1]", "x[E1", "ΑΣ[E1]ΑΣ Σ"])
def test_all_tokenizers_return_the_same_ids(tokenizers, monkeypatch, texts):
    reference, batch, graph = tokenizers
    monkeypatch.setattr(fast, "_COMPILE_CHARS", 0)  # always use the compiled tokenizer
    ids = [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
    rows = batch.encode(texts)
    assert [rows[i].tolist() for i in range(len(texts))] == ids
    assert graph(tf.constant([text.encode() for text in texts])).to_list() == ids
    with_spans = batch.encode(texts, with_spans=True)
    assert with_spans.ids.tolist() == rows.ids.tolist()
    spans = [tokenize_with_offsets(reference, text) for text in texts]
    assert [tokens for tokens, _ in spans] == [reference.tokenize(text) for text in texts]
    assert with_spans.spans.tolist() == [list(pair) for _, pairs in spans for pair in pairs]
    package = pytest.importorskip("tokenizers")
    exported = package.Tokenizer.from_str(json.dumps(tokenizer_json(reference, 512)))
    no_sigma = [(t, i) for t, i in zip(texts, ids, strict=True) if "Σ" not in t]
    for text, expected in no_sigma:
        assert exported.encode(text, add_special_tokens=False).ids == expected


def tokenize(vocab_file, text, tokens=None, **kwargs):
    return FullTokenizer(vocab_file, special_tokens=tokens, **kwargs).tokenize(text)


def test_invalid_bytes_are_ignored_before_special_tokens_are_found(tokenizers):
    reference, _, graph = tokenizers
    texts = [b"a[E\xff1]b", b"\xff[E1]\xff", b"\xffa\xffb[/E1\xc3", b"\xed\xa0\x80@GENE\xff$"]
    texts += [b"a\0b[E1]"]
    expected = [reference.convert_tokens_to_ids(reference.tokenize(text)) for text in texts]
    assert graph(tf.constant(texts)).to_list() == expected


def test_special_tokens_take_the_next_unused_entries(vocab_file):
    tokenizer = FullTokenizer(vocab_file, special_tokens="[E1],[/E1],[MASK],<x>=[unused1]")
    assert tokenizer.tokenize("[E1]a[/E1] [MASK]<x>") == ["[E1]", "a", "[/E1]", "[MASK]", "<x>"]
    places = {token: tokenizer.vocab[token] for token in ("[E1]", "[/E1]", "[MASK]", "<x>")}
    assert places == {"[E1]": 2, "[/E1]": 3, "[MASK]": 10, "<x>": 1}
    assert tokenizer.inv_vocab[2] == "[E1]"
    assert "[unused2]" not in tokenizer.vocab
    # Without them, as in the original.
    assert tokenize(vocab_file, "[E]") == ["[", "e", "]"]
    assert tokenize(vocab_file, "@GENE$", "@GENE$") == ["@GENE$"]


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ("[E1]=[unused9]", r"\[unused9\] is no unused entry"),
        ("[E1]=[E1]", r"\[E1\] is no unused entry"),
        ("[E1]=a", "a is no unused entry"),
        ("[E1]=[SEP]", r"\[SEP\] is no unused entry"),
        ("[E1],[E1]", r"\[E1\] occurs twice"),
        ("[E1]=[unused1],[E2]=[unused1]", r"\[unused1\] occurs twice"),
        ("[E1],,[E2]", "'' is empty"),
        ("a b", "'a b' is empty or contains a space"),
        ("@GENE$=[unused1]", r"@GENE\$ is in the vocabulary. Pass it without =\[unused1\]"),
        ("1x,2x,3x,4x,5x,6x,7x", "no entry for 7x: the vocabulary has 6 .unusedN."),
    ],
)
def test_unsuitable_special_tokens_are_errors(vocab_file, tokens, problem):
    with pytest.raises(UserError, match=problem):
        FullTokenizer(vocab_file, special_tokens=tokens)


def test_special_tokens_may_be_a_list(vocab_file):
    """As those of the estimators."""
    listed = FullTokenizer(vocab_file, special_tokens=["[E1]", "[/E1]=[unused5]"])
    assert listed.vocab == FullTokenizer(vocab_file, special_tokens="[E1],[/E1]=[unused5]").vocab
    assert listed.tokenize("a[E1]a") == ["a", "[E1]", "a"]
    assert FullTokenizer(vocab_file, special_tokens=[]).vocab == FullTokenizer(vocab_file).vocab


def test_lower_case_keeps_accents(vocab_file):
    assert tokenize(vocab_file, "Größe ÜBER") == ["gro", "##ße", "[UNK]"]
    assert tokenize(vocab_file, "Größe ÜBER", strip_accents=False) == ["grö", "##ße", "über"]


def test_all_scripts_that_read_texts_have_the_options(vocab_file):
    classes = [script.options_class for script in SCRIPTS.values()]
    readers = [cls for cls in classes if issubclass(cls, TokenizerOptions)]
    assert len(readers) == 11
    for cls in readers:
        run = cls(vocab_file=vocab_file, special_tokens="[E1]", strip_accents="false")
        assert run.tokenizer().tokenize("Über[E1]a") == ["über", "[E1]", "a"]
        run = cls(vocab_file=vocab_file, pretokenized=True)
        assert run.tokenizer().tokenize("über Über @GENE$") == ["über", "[UNK]", "@GENE$"]
