"""Warnings about a vocabulary beside a model, by what the scripts print."""

import pytest

from bert_tf.config import BertConfig
from bert_tf.finetuning.initialization import load_config_and_tokenizer
from bert_tf.options import ExtractionOptions
from bert_tf.tokenization import load_vocab
from tests.oracle import vocabulary

LETTERS = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENTRIES = [*SPECIAL, *(f"[unused{number}]" for number in range(9)), *LETTERS]


@pytest.fixture
def opened(tmp_path, tiny, said):
    """Opens a vocabulary of some entries beside a model; gives the warnings."""

    def open_vocabulary(entries, own=None, lower=True, vocab_size=None):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        for path in tiny.folder.glob("bert_model.ckpt*"):
            (folder / path.name).write_bytes(path.read_bytes())
        if own:
            (folder / "vocab.txt").write_text("\n".join(own) + "\n", encoding="utf-8")
        config = BertConfig(vocab_size or len(entries))
        (folder / "bert_config.json").write_text(config.to_json_string())
        path = tmp_path / "other.txt"
        path.write_text("\n".join(entries) + "\n", encoding="utf-8")
        said.clear()
        load_config_and_tokenizer(
            ExtractionOptions(
                init_checkpoint=str(folder),
                bert_config_file=str(folder / "bert_config.json"),
                vocab_file=str(path),
                do_lower_case=lower,
            )
        )
        return [record.getMessage() for record in said.records if record.levelname == "WARNING"]

    return open_vocabulary


def test_a_vocabulary_that_differs_from_the_model_s_own(opened):
    moved = [*ENTRIES[:6], "", *ENTRIES[6:-1]]
    (warning,) = opened(moved, ENTRIES)
    assert "differs from" in warning
    assert "in 108 of 114 entries, first at line 7: '' instead of '[unused1]'" in warning
    (warning,) = opened([*ENTRIES[:50], "zz", *ENTRIES[51:]], ENTRIES)
    assert "in 1 of 114 entries, first at line 51: 'zz' instead of 'dg'" in warning
    # Shorter or longer counts as a difference, too.
    assert "first at line 111: '' instead of 'jg'" in opened(ENTRIES[:110], ENTRIES)[0]


def test_what_is_also_in_the_model_s_own_vocabulary_is_right(opened):
    odd = [*LETTERS[:3], *SPECIAL[::-1], "aa", "", *LETTERS[3:]]
    assert opened(odd, odd, vocab_size=200) == []
    # [unusedN] are for words of one's own; and blank lines at the end have no effect.
    assert opened([*ENTRIES[:6], "wort", *ENTRIES[7:]], ENTRIES) == []
    assert opened([*ENTRIES, "", ""], ENTRIES) == []
    assert len(opened([*ENTRIES[:6], "aa", *ENTRIES[7:]], ENTRIES)) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([*ENTRIES[:30], "", *ENTRIES[30:]], "is blank in line 31"),
        ([*ENTRIES, "aa"], "has 'aa' in lines 15 and 115"),
        (ENTRIES[1:], "starts with '[UNK]' instead of '[PAD]'"),
        (
            ["[PAD]", "[UNK]", "[SEP]", "[CLS]", *ENTRIES[4:]],
            "in lines [2, 4, 3, 5], not in consec",
        ),
    ],
)
def test_a_vocabulary_that_is_unusual_in_itself(opened, entries, message):
    (warning,) = opened(entries)
    assert message in warning


def test_a_vocabulary_that_was_changed_in_the_model_s_own_folder(opened, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "other.txt").symlink_to(tmp_path / "model" / "vocab.txt")
    (warning,) = opened(sorted(ENTRIES), ENTRIES)
    assert "instead of '[PAD]'" in warning


def test_a_vocabulary_that_is_smaller_than_the_model(opened):
    # Rounded up, to a multiple of 64 here, and to one of 8 at least.
    assert opened(ENTRIES, vocab_size=128) == []
    (warning,) = opened(ENTRIES[:-1], vocab_size=len(ENTRIES))
    assert "has 113 entries, but the model's vocab_size is 114" in warning
    (warning,) = opened(ENTRIES, vocab_size=len(ENTRIES) + 65)
    assert "has 114 entries, but the model's vocab_size is 179" in warning


def test_the_casing_of_the_vocabulary(opened):
    (warning,) = opened(ENTRIES, lower=False)
    assert "has 100 lower-case tokens and 0 with capitals; capitals become [UNK]" in warning
    assert warning.endswith("For an uncased model, pass --do_lower_case=true")
    # Without lower-case letters nothing can be said.
    assert opened([*SPECIAL, "京", "ก", "##า"], lower=False) == []
    (warning,) = opened([*ENTRIES, "The", "Film"])
    assert warning.endswith("For a cased model, pass --do_lower_case=false")


@pytest.mark.parametrize(
    ("name", "cased"),
    [
        ("uncased", False),
        ("cased", True),
        ("chinese", False),
        pytest.param("multilingual", True, marks=pytest.mark.shared),
    ],
)
def test_published_vocabularies_are_not_questioned(opened, name, cased):
    path = vocabulary(name)
    entries = path.read_bytes().decode().rstrip("\n").split("\n")
    assert opened(entries, lower=not cased) == []
    assert len(opened(entries, lower=cased)) == 1
    assert len(entries) == max(load_vocab(str(path)).values()) + 1
