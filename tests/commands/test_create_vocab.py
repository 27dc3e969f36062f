"""create_vocab as a library: the vocabulary, its reserved and unused tokens, and errors."""

import random

import pytest

from bert_tf.base.errors import UserError
from bert_tf.commands import create_vocab
from bert_tf.options import VocabularyOptions
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

WORDS = ["walking", "walked", "walker", "talking", "talked", "Été", "été", "sing", "singing"]


@pytest.fixture
def corpus_dir(tmp_path):
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=8)) + " 北京." for _ in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def options(corpus_dir, **changes):
    return VocabularyOptions(
        **{
            "input_file": str(corpus_dir / "text.txt"),
            "output_file": str(corpus_dir / "vocab.txt"),
            "vocab_size": 160,
            **changes,
        }
    )


def test_requested_vocabulary_size(corpus_dir):
    tokens = create_vocab.run(options(corpus_dir))
    assert (corpus_dir / "vocab.txt").read_text(encoding="utf-8").splitlines() == tokens
    assert len(tokens) == len(set(tokens)) == 160
    assert tokens[:2] == ["[PAD]", "[unused0]"]
    assert tokens[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    reserved = create_vocab.reserved_tokens(994)
    assert (len(reserved), reserved[103:105]) == (999, ["[MASK]", "[unused99]"])
    assert tokens[104:107] == [".", "京", "北"]
    # Punctuation and ideographs are words of their own, so they have no `##` token.
    assert "##." not in tokens
    assert "##北" not in tokens
    tokenizer = FullTokenizer(str(corpus_dir / "vocab.txt"))
    pieces = tokenizer.tokenize("Walking, TALKED étés 北京.")
    # Only the comma, which does not occur in the corpus, is unknown.
    assert pieces[:2] == ["walking", "[UNK]"]
    assert pieces.count("[UNK]") == 1


def test_characters_without_a_token_warn(corpus_dir, run_log):
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + 60)]
    (corpus_dir / "text.txt").write_text(" ".join(characters[:40] * 20 + characters), "utf-8")
    create_vocab.run(options(corpus_dir, vocab_size=144, num_unused_tokens=99))
    message = "20 characters (2.3% of the text) have no token"
    assert message in run_log.text
    run_log.clear()
    create_vocab.run(options(corpus_dir, vocab_size=164, num_unused_tokens=99))
    assert "have no token" not in run_log.text


def test_cased_vocabulary_with_three_unused_tokens(corpus_dir):
    tokens = create_vocab.run(options(corpus_dir, do_lower_case=False, num_unused_tokens=3))
    assert tokens[:8] == [
        "[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert "É" in tokens
    # The corpus has too few word pieces to fill the vocabulary.
    assert tokens[-1].startswith("[unused")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 110}, "no room for the characters"),
        ({"vocab_size": 104}, "no room for the characters"),
        ({"output_file": "text.txt"}, "also an input"),
        ({"input_file": "none*.txt"}, "No file matches"),
        ({"output_file": "/dev/null/vocab.txt"}, "Cannot write"),
        ({"input_file": "/dev/null"}, "must be a file|No words in"),
    ],
)
def test_invalid_options(corpus_dir, monkeypatch, changes, message):
    monkeypatch.chdir(corpus_dir)
    with pytest.raises(UserError, match=message):
        create_vocab.run(options(corpus_dir, **changes))
    assert not (corpus_dir / "vocab.txt").exists()


def test_rare_characters_fill_the_rest_of_the_vocabulary(corpus_dir):
    # At first, ideographs take up at most half of the vocabulary. Here, the other half is not
    # needed for word pieces, so rarer ideographs fill it. The first 40 are the most frequent.
    ideographs = "".join(chr(0x4E00 + number) for number in range(60))
    lines = ["walk walked"] * 5 + [ideographs, ideographs[:50], ideographs[:40]]
    (corpus_dir / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    tokens = create_vocab.run(options(corpus_dir, num_unused_tokens=0, vocab_size=70))
    assert len(tokens) == len(set(tokens)) == 70
    assert not any(token.startswith("[unused") for token in tokens)
    assert set(ideographs[:40]) <= set(tokens)
    smaller = create_vocab.run(options(corpus_dir, num_unused_tokens=0, vocab_size=40))
    assert not any(token.startswith("[unused") for token in smaller)
    # A vocabulary that has room for more than all characters ends with unused tokens.
    larger = create_vocab.run(options(corpus_dir, num_unused_tokens=0, vocab_size=300))
    assert set(ideographs) <= set(larger)
    assert larger[-1].startswith("[unused")


def test_model_vocabulary_is_not_overwritten(corpus_dir):
    (corpus_dir / "vocab.txt").write_text("[PAD]\n")
    (corpus_dir / "run.json").write_text("{}")
    with pytest.raises(UserError, match=r"vocab\.txt belongs to a model"):
        create_vocab.run(options(corpus_dir))
    assert (corpus_dir / "vocab.txt").read_text() == "[PAD]\n"


def test_warning_about_json_lines(corpus_dir, caplog):
    lines = [f'{{"text": "{word} and more"}}' for word in WORDS]
    (corpus_dir / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    counts = create_vocab.count_words([str(corpus_dir / "text.txt")], BasicTokenizer())
    assert counts["walking"] == 1
    assert "text.txt: 9 of 9 lines have tabs, JSON or HTML" in caplog.text
