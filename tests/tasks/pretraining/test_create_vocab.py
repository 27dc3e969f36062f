"""create_vocab as a library."""

import random

import pytest

from bert_tf.errors import UserError
from bert_tf.options import VocabularyOptions
from bert_tf.tasks.pretraining import create_vocab
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

WORDS = ["walking", "walked", "walker", "talking", "talked", "Été", "été", "sing", "singing"]


@pytest.fixture
def text(tmp_path):
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=8)) + " 北京." for _ in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def options(text, **changes):
    return VocabularyOptions(
        **{
            "input_file": str(text / "text.txt"),
            "output_file": str(text / "vocab.txt"),
            "vocab_size": 160,
            **changes,
        }
    )


def test_requested_vocabulary_size(text):
    tokens = create_vocab.run(options(text))
    assert (text / "vocab.txt").read_text(encoding="utf-8").splitlines() == tokens
    assert len(tokens) == len(set(tokens)) == 160
    assert tokens[:2] == ["[PAD]", "[unused0]"]
    assert tokens[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokens[104:107] == [".", "京", "北"]
    # `##` characters are needed only within words.
    assert "##." not in tokens
    assert "##北" not in tokens
    tokenizer = FullTokenizer(str(text / "vocab.txt"))
    pieces = tokenizer.tokenize("Walking, TALKED étés 北京.")
    assert pieces[0] == "walking"
    # The text contains no comma.
    assert [piece for piece in pieces if piece == "[UNK]"] == ["[UNK]"]


def test_case_and_unused_tokens(text):
    tokens = create_vocab.run(options(text, do_lower_case=False, num_unused_tokens=3))
    assert tokens[:8] == [
        "[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert "É" in tokens
    assert tokens[-1].startswith("[unused")
    assert len(create_vocab.reserved_tokens(994)) == 999
    assert create_vocab.reserved_tokens(994)[103:105] == ["[MASK]", "[unused99]"]


def test_invalid_options(text):
    with pytest.raises(UserError, match="no room for the characters"):
        create_vocab.run(options(text, vocab_size=110))
    with pytest.raises(UserError, match="--vocab_size must be between 10"):
        create_vocab.run(options(text, vocab_size=3))
    with pytest.raises(UserError, match="leaves no room after --num_unused_tokens=99"):
        create_vocab.run(options(text, vocab_size=104))
    with pytest.raises(UserError, match="also an input file"):
        create_vocab.run(options(text, output_file=str(text / "text.txt")))
    with pytest.raises(UserError, match="No file matches"):
        create_vocab.run(options(text, input_file=str(text / "none*.txt")))
    with pytest.raises(UserError, match="Cannot write"):
        create_vocab.run(options(text, output_file="/dev/null/vocab.txt"))
    (text / "text.txt").write_text(" \n")
    with pytest.raises(UserError, match="No words in"):
        create_vocab.run(options(text))
    assert not (text / "vocab.txt").exists()


def test_rare_characters_fill_the_remaining_entries(text):
    # Half of the vocabulary is for ideographs; most of the other pieces are not needed.
    common = "".join(chr(0x4E00 + number) for number in range(60))
    lines = ["walk walked"] * 5 + [common, common[:50], common[:40]]
    (text / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    tokens = create_vocab.run(options(text, num_unused_tokens=0, vocab_size=70))
    assert len(tokens) == len(set(tokens)) == 70
    assert [token for token in tokens if token.startswith("[unused")] == []
    # The most frequent characters are always included.
    assert set(common[:40]) <= set(tokens)
    smaller = create_vocab.run(options(text, num_unused_tokens=0, vocab_size=40))
    assert not any(token.startswith("[unused") for token in smaller)
    # With more entries than characters, some remain unused.
    larger = create_vocab.run(options(text, num_unused_tokens=0, vocab_size=300))
    assert set(common) <= set(larger)
    assert larger[-1].startswith("[unused")


def test_model_vocabulary_is_not_overwritten(text):
    (text / "vocab.txt").write_text("[PAD]\n")
    (text / "run.json").write_text("{}")
    with pytest.raises(UserError, match=r"vocab.txt belongs to a model: choose a different"):
        create_vocab.run(options(text))
    assert (text / "vocab.txt").read_text() == "[PAD]\n"


def test_json_corpus(text, caplog):
    lines = [f'{{"text": "{word} and more"}}' for word in WORDS]
    (text / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    counts = create_vocab.count_words([str(text / "text.txt")], BasicTokenizer())
    assert counts["walking"] == 1
    assert "text.txt: 9 lines are JSON or have tabs" in caplog.text
