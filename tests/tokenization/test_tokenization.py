"""The reference tokenizer, compared with the original and its rules."""

import ast
import gzip
import json
import pickle
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import tokenization
from bert_tf.base.errors import UserError
from bert_tf.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer
from tests.oracle import ROOT, golden

UNICODE = unicodedata.unidata_version
BOTH_CASINGS = pytest.mark.parametrize("lower", [True, False], ids=["lower", "cased"])

# ---- Against the original's results --------------------------------------------------------


def read_json(relative: str):
    path = golden(relative)
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


@cache
def golden_texts() -> list[tuple[str | bytes, dict]]:
    """Returns the golden inputs, with the results for this Python's Unicode version."""
    contents = read_json("tokenization/tokenization.json.gz")
    recorded_versions = {run["unidata_version"] for run in contents["meta"]["compared"]}
    pairs = []
    for item in contents["items"]:
        text = bytes.fromhex(item["bytes_hex"]) if "bytes_hex" in item else item["text"]
        other_versions = item.get("other_unicode", {})
        if UNICODE not in recorded_versions and (other_versions or not in_unicode_3_2(text)):
            continue
        pairs.append((text, item | other_versions.get(UNICODE, {})))
    return pairs


def in_unicode_3_2(text: str | bytes) -> bool:
    """Returns whether all characters are in Unicode 3.2, so that newer versions agree on them.

    Only used if the goldens do not include this Python's Unicode version.
    """
    text = tokenization.convert_to_unicode(text)
    return all(unicodedata.ucd_3_2_0.category(char) != "Cn" for char in text)


def assert_matches_golden(tokenize, field: str) -> None:
    assert golden_texts()
    differing = [
        (text, actual) for text, item in golden_texts() if (actual := tokenize(text)) != item[field]
    ]
    assert not differing


@BOTH_CASINGS
def test_basic_tokenizer_matches_the_original(lower):
    assert_matches_golden(BasicTokenizer(lower).tokenize, "basic_lower" if lower else "basic_cased")


@BOTH_CASINGS
@pytest.mark.parametrize("vocab", ["uncased", "cased", "chinese"])
def test_full_tokenizer_matches_the_original(vocab, lower):
    tokenizer = FullTokenizer(str(golden(f"vocab/{vocab}.txt")), do_lower_case=lower)
    field = f"{vocab}_{'lower' if lower else 'nolower'}"
    assert_matches_golden(
        lambda text: tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)), f"{field}_ids"
    )
    if f"{field}_tokens" in golden_texts()[0][1]:  # only recorded for common combinations
        assert_matches_golden(tokenizer.tokenize, f"{field}_tokens")


@pytest.mark.parametrize(
    ("field", "vocab", "options"),
    [
        ("wordpiece_uncased_raw", "uncased", {}),
        ("wordpiece_cased_raw", "cased", {}),
        ("wordpiece_uncased_max10", "uncased", {"max_input_chars_per_word": 10}),
    ],
)
def test_wordpiece_matches_the_original_on_raw_text(field, vocab, options):
    vocab = tokenization.load_vocab(str(golden(f"vocab/{vocab}.txt")))
    assert_matches_golden(WordpieceTokenizer(vocab, **options).tokenize, field)


# Flags of a code point in the golden table.
DROPPED, SPACE, PUNCTUATION, CJK, SPLITS, MARK = 1, 2, 4, 8, 16, 32


@cache
def load_character_tables() -> tuple[list[int], list[str]]:
    """Returns the flags of each code point, and its lower case without accents."""
    tables = read_json("tokenization/char_tables.json.gz")
    version = UNICODE if UNICODE in tables["runs"] else tables["primary"]
    flags = [0] * (sys.maxunicode + 1)
    for first, last, bits in tables["runs"][version]:
        flags[first : last + 1] = [bits] * (last + 1 - first)
    lowered = [chr(code) for code in range(sys.maxunicode + 1)]
    mapping = tables[f"lower_strip_{tables['primary']}"]
    for code, replacement in (mapping | tables["lower_strip_changes"].get(version, {})).items():
        if replacement is not None:
            code_points = [int(part, 16) for part in replacement.split()]
            lowered[int(code, 16)] = "".join(map(chr, code_points))
    for syllable in range(0xAC00, 0xD7A4):  # decomposed by a rule, so not recorded
        lead, rest = divmod(syllable - 0xAC00, 21 * 28)
        vowel, tail = divmod(rest, 28)
        jamo = [0x1100 + lead, 0x1161 + vowel] + ([0x11A7 + tail] if tail else [])
        lowered[syllable] = "".join(map(chr, jamo))
    return flags, lowered


@cache
def all_characters() -> list[str]:
    is_recorded = UNICODE in read_json("tokenization/char_tables.json.gz")["runs"]
    return [c for c in map(chr, range(sys.maxunicode + 1)) if is_recorded or in_unicode_3_2(c)]


def test_character_classes_match_the_original():
    flags, _ = load_character_tables()
    differing = []
    for char in all_characters():
        actual = (
            DROPPED * (tokenization.is_control(char) or char == "\ufffd")
            + SPACE * tokenization.is_whitespace(char)
            + PUNCTUATION * tokenization.is_punctuation(char)
            + CJK * tokenization.is_cjk(char)
            + SPLITS * char.isspace()
            + MARK * (unicodedata.category(char) == "Mn")
        )
        if actual != flags[ord(char)]:
            differing.append((char, actual, flags[ord(char)]))
    assert not differing


@BOTH_CASINGS
def test_tokens_around_every_character_match_the_original(lower):
    flags, lowered = load_character_tables()
    tokenizer = BasicTokenizer(lower)
    differing = []
    for char in all_characters():
        bits = flags[ord(char)]
        if bits & DROPPED:
            expanded = ""
        elif bits & (SPACE | SPLITS):
            expanded = " "
        else:
            expanded = lowered[ord(char)] if lower else char
            expanded = "".join(f" {c} " if flags[ord(c)] & PUNCTUATION else c for c in expanded)
            expanded = f" {expanded} " if bits & CJK else expanded
        expected = [part for part in f"x{expanded}y".split(" ") if part]
        if tokenizer.tokenize(f"x{char}y") != expected:
            differing.append((char, expected))
    assert not differing


def test_vocabulary_loading_matches_the_original(tmp_path):
    path = tmp_path / "vocab.txt"
    for case in read_json("tokenization/units.json")["load_vocab"]:
        path.write_bytes(bytes.fromhex(case["file_hex"]))
        if "exception" in case:
            assert case["exception"] == "UnicodeDecodeError"
            with pytest.raises(UserError, match="not UTF-8"):
                tokenization.load_vocab(str(path))
        else:
            tokenizer = FullTokenizer(str(path))
            assert list(map(list, tokenizer.vocab.items())) == case["items"]
            assert sorted(map(list, tokenizer.inv_vocab.items())) == case["inv"]


def test_casing_check_matches_the_original():
    # The original does not include models released after 2018; see `test_releases.py`.
    later_models = ("/wwm_", "/uncased_L-2_H-128_A-2/")
    for case in read_json("tokenization/units.json")["validate_case"]:
        arguments = case["do_lower_case"], case["init_checkpoint"]
        if any(name in (case["init_checkpoint"] or "") for name in later_models):
            assert case["result"] == "ok"
        elif case["result"] == "ok":
            tokenization.validate_case_matches_checkpoint(*arguments)
        else:
            assert case["result"] == "ValueError"
            with pytest.raises(UserError):
                tokenization.validate_case_matches_checkpoint(*arguments)


def test_wordpiece_matches_the_original_on_a_toy_vocabulary():
    units = read_json("tokenization/units.json")
    for case in units["wordpiece"]:
        tokenizer = WordpieceTokenizer(
            units["wordpiece_vocab"], case["unk_token"], case["max_input_chars_per_word"]
        )
        assert tokenizer.tokenize(case["text"]) == case["tokens"], case["text"]


def test_error_types_match_the_original(tokenizer):
    calls = {
        "convert_to_unicode(123)": (tokenization.convert_to_unicode, 123),
        "convert_tokens_to_ids of an unknown token": (tokenizer.convert_tokens_to_ids, ["nowhere"]),
        "FullTokenizer.tokenize(None)": (tokenizer.tokenize, None),
    }
    for case in read_json("tokenization/units.json")["errors"]:
        function, argument = calls[case["call"]]
        with pytest.raises({"ValueError": ValueError, "KeyError": KeyError}[case["result"]]):
            function(argument)


# ---- Small examples ------------------------------------------------------------------------

VOCAB = "[UNK] [CLS] [SEP] cafe ##s un ##aff ##able , 中 ##文 run"


@pytest.fixture
def tokenizer(tmp_path: Path) -> FullTokenizer:
    path = tmp_path / "vocab.txt"
    path.write_text(VOCAB.replace(" ", "\n"), encoding="utf-8")
    return FullTokenizer(str(path))


def test_full_tokenizer(tokenizer):
    tokens = tokenizer.tokenize("UNaffable,Cafés")
    assert tokens == ["un", "##aff", "##able", ",", "cafe", "##s"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert ids == [5, 6, 7, 8, 3, 4]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenization.convert_tokens_to_ids(tokenizer.vocab, tokens) == ids
    assert tokenization.convert_ids_to_tokens(tokenizer.inv_vocab, ids) == tokens
    with pytest.raises(TypeError, match="a list of tokens, not a text"):
        tokenizer.convert_tokens_to_ids("un")
    assert tokenizer.convert_ids_to_tokens(np.array(ids)) == tokens
    for batch in (np.array([ids, ids]), [ids, ids], 5):
        with pytest.raises(TypeError):
            tokenizer.convert_ids_to_tokens(batch)


@pytest.mark.parametrize(
    ("text", "lowered", "cased"),
    [
        (" Hello \n You? ", ["hello", "you", "?"], ["Hello", "You", "?"]),
        ("He\u0301llo", ["hello"], ["He\u0301llo"]),
        ("ah\u535a\u63a8zz", ["ah", "\u535a", "\u63a8", "zz"], ["ah", "\u535a", "\u63a8", "zz"]),
        ("ΟΔΟΣ ΣΑΣ'Α", ["οδος", "σασ", "'", "α"], ["ΟΔΟΣ", "ΣΑΣ", "'", "Α"]),
        ("한", ["\u1112\u1161\u11ab"], ["한"]),
        ("[MASK]", ["[", "mask", "]"], ["[", "MASK", "]"]),
        (b"caf\xc3\xa9\xff!", ["cafe", "!"], ["café", "!"]),
    ],
)
def test_basic_tokenizer(text, lowered, cased):
    assert BasicTokenizer().tokenize(text) == lowered
    assert BasicTokenizer(do_lower_case=False).tokenize(text) == cased


def test_too_long_word_is_unknown():
    vocab = {"[UNK]": 0, "a": 1, "##a": 2}
    assert WordpieceTokenizer(vocab).tokenize("a" * 200) == ["a"] + ["##a"] * 199
    assert WordpieceTokenizer(vocab).tokenize("a" * 201) == ["[UNK]"]
    assert WordpieceTokenizer(vocab, "?", 2).tokenize("aa aaa") == ["a", "##a", "?"]


@pytest.mark.parametrize("convert", [tokenization.convert_to_unicode, tokenization.printable_text])
def test_convert_to_unicode_accepts_str_and_utf8(convert):
    assert convert("é") == convert("é".encode()) == convert(b"\xff\xc3\xa9") == "é"
    for invalid in (None, 1, ["a"], bytearray(b"a")):
        with pytest.raises(ValueError, match=type(invalid).__name__):
            convert(invalid)


def test_casing_error_names_the_flag():
    check = tokenization.validate_case_matches_checkpoint
    with pytest.raises(UserError, match=r"uncased_L-12_H-768_A-12 .*Pass --do_lower_case=true"):
        check(False, "models/uncased_L-12_H-768_A-12/bert_model.ckpt")
    with pytest.raises(UserError, match=r"multi_cased_L-12_H.* Pass --do_lower_case=false"):
        check(True, "models/multi_cased_L-12_H-768_A-12/bert_model.ckpt")
    check(True, "models/my_cased_L-12_H-768_A-12/bert_model.ckpt")
    check(True, None)


def test_tokenizer_can_be_pickled(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.tokenize("unaffable cafés") == tokenizer.tokenize("unaffable cafés")


# ---- Properties of any text ----------------------------------------------------------------

AWKWARD_CHARACTERS = (
    "aÀéIİıΣσςß \t\n\u2028\u3000\x00\u200b\ufffd'’.,$…\u0301\u0323\u302e\u034f中豈한가\ud800[]#"
)
NO_DEADLINE = settings(deadline=None)
ANY_TEXT = st.text(st.sampled_from(AWKWARD_CHARACTERS) | st.characters(exclude_categories=()))


def tokenize_step_by_step(text: str, lower: bool) -> list[str]:
    """Applies the original's rules in order, word by word, without lookup tables."""
    cleaned = ""
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            cleaned += " "
        elif char != "\ufffd" and unicodedata.category(char) not in ("Cc", "Cf"):
            cleaned += f" {char} " if tokenization.is_cjk(char) else char
    words = []
    for word in cleaned.split():
        if lower:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        words.append("".join(f" {c} " if tokenization.is_punctuation(c) else c for c in word))
    return " ".join(words).split()


@BOTH_CASINGS
@NO_DEADLINE
@given(text=ANY_TEXT)
def test_basic_tokenizer_matches_step_by_step_rules(lower, text):
    assert BasicTokenizer(lower).tokenize(text) == tokenize_step_by_step(text, lower)


def is_order_stable(char: str) -> bool:
    # Normalization may reorder combining characters outside category Mn once the marks are
    # stripped.
    return not unicodedata.combining(char) or unicodedata.category(char) == "Mn"


@BOTH_CASINGS
@NO_DEADLINE
@given(text=ANY_TEXT.map(lambda text: "".join(filter(is_order_stable, text))))
def test_basic_tokenization_is_idempotent(lower, text):
    tokens = BasicTokenizer(lower).tokenize(text)
    assert BasicTokenizer(lower).tokenize(" ".join(tokens)) == tokens


PIECES = st.text("ab", min_size=1, max_size=4)


@NO_DEADLINE
@given(st.sets(PIECES), st.sets(PIECES), st.text("ab", min_size=1, max_size=12))
def test_wordpiece_is_longest_match_first(first, inner, word):
    vocab = dict.fromkeys({"a", "b", "##a"} | first | {f"##{piece}" for piece in inner}, 0)
    actual = WordpieceTokenizer(vocab).tokenize(word)
    rest, prefix, expected = word, "", []
    while rest:
        matches = [rest[:end] for end in range(len(rest) + 1) if prefix + rest[:end] in vocab]
        if not matches:
            expected = ["[UNK]"]
            break
        expected.append(prefix + matches[-1])
        rest, prefix = rest.removeprefix(matches[-1]), "##"
    assert actual == expected
    assert actual == ["[UNK]"] or "".join(piece.removeprefix("##") for piece in actual) == word


# ---- Imports and arguments -----------------------------------------------------------------


def test_tokenization_does_not_import_tensorflow(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nhello\n", encoding="utf-8")
    code = (
        "import sys; from bert_tf import tokenization;"
        "print(tokenization.FullTokenizer(sys.argv[1]).tokenize('Hello'));"
        "print(sorted({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "vocab.txt")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(map(ast.literal_eval, process.stdout.splitlines())) == [["hello"], []]


def test_lower_casing_with_a_cased_vocabulary_warns_once(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\nthe\nThe\nJohn\n")
    FullTokenizer(str(path), do_lower_case=False)
    assert not caplog.text
    FullTokenizer(str(path))
    FullTokenizer(str(path))
    (record,) = caplog.records
    assert "2 tokens with capitals, such as 'The', which lower-cased" in record.message
    assert record.message.endswith("never matches. For a cased model, set do_lower_case to false")


def test_few_capitals_in_an_uncased_vocabulary_warn_once(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    tokens = ["[UNK]", "<S>", "[unused1]", "##A", *(f"w{n}" for n in range(200))]
    path.write_text("\n".join(tokens))
    assert FullTokenizer(str(path)).tokenize("w7") == ["w7"]
    path.write_text("\n".join([*tokens, "Anfield"]))
    FullTokenizer(str(path), do_lower_case=False)
    special = FullTokenizer(str(path), special_tokens="Anfield")
    assert special.tokenize("w7 Anfield") == ["w7", "Anfield"]
    assert not caplog.text
    assert FullTokenizer(str(path)).tokenize("w7 Anfield") == ["w7", "[UNK]"]
    FullTokenizer(str(path))
    (record,) = caplog.records
    assert record.message == (
        f"{path}: 1 token with capitals, such as 'Anfield', which lower-cased text never matches"
    )


def test_invalid_vocabulary_and_casing_are_rejected(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\nthe\n")
    # TensorFlow Hub modules return NumPy's bool.
    assert FullTokenizer(str(path), np.bool_(True)).tokenize("The") == ["the"]
    with pytest.raises(ValueError, match=r"be True or False. Received: 'False'"):
        FullTokenizer(str(path), do_lower_case="False")
    assert not caplog.text
    path.write_text('{"the": 0}\n')
    FullTokenizer(str(path))
    assert "vocab.txt has no [UNK]: is it a BERT vocabulary?" in caplog.text


@BOTH_CASINGS
@NO_DEADLINE
@given(text=ANY_TEXT)
def test_basic_tokens_have_no_separators(lower, text):
    for token in BasicTokenizer(lower).tokenize(text):
        assert token.split() == [token]
        assert len(token) == 1 or not any(map(tokenization.is_punctuation, token))


def test_word_with_unknown_piece_is_unknown(tokenizer):
    tokenize = WordpieceTokenizer(tokenizer.vocab).tokenize
    assert tokenize("") == []
    assert tokenize("unaffable unaffableX run") == ["un", "##aff", "##able", "[UNK]", "run"]
