"""Warnings about a vocabulary that does not match the model."""

import pytest

from bert_tf.config import BertConfig
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import ExtractionOptions
from bert_tf.tokenization import load_vocab
from tests.oracle import vocabulary

LETTERS = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENTRIES = [*SPECIAL, *(f"[unused{number}]" for number in range(9)), *LETTERS]


@pytest.fixture
def vocabulary_warnings(tmp_path, tiny, run_log):
    """Returns a function that loads a vocabulary for a model and returns the logged warnings."""

    def load(entries, model_entries=None, lower=True, vocab_size=None):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        for path in tiny.folder.glob("bert_model.ckpt*"):
            (folder / path.name).write_bytes(path.read_bytes())
        if model_entries:
            (folder / "vocab.txt").write_text("\n".join(model_entries) + "\n", encoding="utf-8")
        config = BertConfig(vocab_size or len(entries))
        (folder / "bert_config.json").write_text(config.to_json_string())
        path = tmp_path / "other.txt"
        path.write_text("\n".join(entries) + "\n", encoding="utf-8")
        run_log.clear()
        read_model_files(
            ExtractionOptions(
                init_checkpoint=str(folder),
                bert_config_file=str(folder / "bert_config.json"),
                vocab_file=str(path),
                do_lower_case=lower,
            )
        )
        return [record.getMessage() for record in run_log.records if record.levelname == "WARNING"]

    return load


def test_vocabulary_different_from_the_model(vocabulary_warnings):
    with_blank_line = [*ENTRIES[:6], "", *ENTRIES[6:-1]]
    (warning,) = vocabulary_warnings(with_blank_line, ENTRIES)
    assert "differs from" in warning
    assert "in 108 of 114 entries, first on line 7: '' instead of '[unused1]'" in warning
    (warning,) = vocabulary_warnings([*ENTRIES[:50], "zz", *ENTRIES[51:]], ENTRIES)
    assert "in 1 of 114 entries, first on line 51: 'zz' instead of 'dg'" in warning
    # Missing entries also count as differences.
    assert "first on line 111: '' instead of 'jg'" in vocabulary_warnings(ENTRIES[:110], ENTRIES)[0]


def test_irregular_model_vocabulary_does_not_warn(vocabulary_warnings):
    odd_entries = [*LETTERS[:3], *SPECIAL[::-1], "aa", "", *LETTERS[3:]]
    assert vocabulary_warnings(odd_entries, odd_entries, vocab_size=200) == []
    # [unusedN] may be replaced with new words, and trailing blank lines have no effect.
    assert vocabulary_warnings([*ENTRIES[:6], "wort", *ENTRIES[7:]], ENTRIES) == []
    assert vocabulary_warnings([*ENTRIES, "", ""], ENTRIES) == []
    assert len(vocabulary_warnings([*ENTRIES[:6], "aa", *ENTRIES[7:]], ENTRIES)) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([*ENTRIES[:30], "", *ENTRIES[30:]], "has a blank line or a duplicate, '', on line 31"),
        ([*ENTRIES, "aa"], "has a blank line or a duplicate, 'aa', on line 115"),
        (ENTRIES[1:], "starts with '[UNK]' instead of '[PAD]'"),
    ],
)
def test_malformed_vocabulary_warns(vocabulary_warnings, entries, message):
    (warning,) = vocabulary_warnings(entries)
    assert message in warning


def test_edited_vocabulary_of_the_model_warns(vocabulary_warnings, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "other.txt").symlink_to(tmp_path / "model" / "vocab.txt")
    (warning,) = vocabulary_warnings(sorted(ENTRIES), ENTRIES)
    assert "instead of '[PAD]'" in warning


def test_vocabulary_smaller_than_the_model_warns(vocabulary_warnings):
    # vocab_size may be padded to a multiple of 8, 16, 32 or 64.
    assert vocabulary_warnings(ENTRIES, vocab_size=128) == []
    (warning,) = vocabulary_warnings(ENTRIES[:-1], vocab_size=len(ENTRIES))
    assert "has 113 entries, but the model's vocab_size is 114" in warning
    (warning,) = vocabulary_warnings(ENTRIES, vocab_size=len(ENTRIES) + 65)
    assert "has 114 entries, but the model's vocab_size is 179" in warning


def test_casing_mismatch_warns(vocabulary_warnings):
    (warning,) = vocabulary_warnings(ENTRIES, lower=False)
    assert "0 tokens with capitals, and 100 without" in warning
    assert warning.endswith("For an uncased model, pass --do_lower_case=true")
    # The casing of a vocabulary without Latin letters is unknown.
    assert vocabulary_warnings([*SPECIAL, "京", "ก", "##า"], lower=False) == []
    (warning,) = vocabulary_warnings([*ENTRIES, "The", "Film"])
    assert warning.endswith("For a cased model, set do_lower_case to false")


@pytest.mark.parametrize(
    ("name", "cased"),
    [
        ("uncased", False),
        ("cased", True),
        ("chinese", False),
        pytest.param("multilingual", True, marks=pytest.mark.shared),
    ],
)
def test_published_vocabularies_do_not_warn(vocabulary_warnings, name, cased):
    path = vocabulary(name)
    entries = path.read_bytes().decode().rstrip("\n").split("\n")
    assert vocabulary_warnings(entries, lower=not cased) == []
    assert len(vocabulary_warnings(entries, lower=cased)) == 1
    assert len(entries) == max(load_vocab(str(path)).values()) + 1
