"""`BertTokenizer` and `BertTokenizerFast`, compared with those of transformers 4.57."""

import collections
import gzip
import itertools
import json
import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.errors import UserError
from bert_tf.compat.transformers.encoding import Encoding
from bert_tf.compat.transformers.tokenizer import AutoTokenizer, BertTokenizer, BertTokenizerFast
from bert_tf.tokenization.special_tokens import USED
from tests.oracle import data, golden

VOCAB = str(golden("vocab/uncased.txt"))
# Text of `make_tokens.py` with the original's ids; transformers has [UNK] for so long a word.
OTHER_IDS = ["x" * 120]
# Awkward strings whose ids are the original's, by category; the reasons are in the test.
AWKWARD = {"long_words": 11, "surrogates": 5, "random_bmp": 14, "newer_unicode": 4}
AWKWARD |= {"normal_forms": 3, "greek_cyrillic": 1, "control_chars": 1, "cjk": 1}
AWKWARD |= {"random_any": 1, "random_block": 1}


@pytest.fixture(scope="module")
def slow():
    return BertTokenizer(VOCAB, model_max_length=64)


@pytest.fixture(scope="module")
def fast():
    return BertTokenizerFast(VOCAB, model_max_length=64)


@pytest.fixture(scope="module")
def tokenizers():
    return pytest.importorskip("tokenizers")


def call(function, *args, **kwargs):
    try:
        return {"result": json.loads(json.dumps(function(*args, **kwargs)))}
    except UserError:
        return {"error": True}


@pytest.mark.shared
def test_golden_cases():
    expected = json.loads((data("../golden/tfbert") / "tokens.json").read_text())
    path = data("../golden/tfbert") / "bert_model"
    ours = {
        "slow": BertTokenizer.from_pretrained(path),
        "fast": BertTokenizerFast.from_pretrained(path),
        "slow_cased": BertTokenizer.from_pretrained(path, do_lower_case=False),
    }
    results = []  # texts, ours, theirs
    for case in expected["cases"]:
        tokenizer, text, pair = ours[case["tokenizer"]], case["text"], case["pair"]
        ids = case["encode"]
        encoding = tokenizer(text, pair)
        found = {
            "tokenize": tokenizer.tokenize(text),
            "encode": tokenizer.encode(text, pair),
            "decode": tokenizer.decode(ids),
            "decode_skip": tokenizer.decode(ids, skip_special_tokens=True),
            "decode_no_clean_up": tokenizer.decode(ids, clean_up_tokenization_spaces=False),
            "tokens_of_ids": tokenizer.convert_ids_to_tokens(ids),
            "tokens_to_string": tokenizer.convert_tokens_to_string(case["tokenize"]),
            "word_ids": encoding.word_ids(),
            "sequence_ids": encoding.sequence_ids(),
        }
        results += [((text, pair), found[name], case[name]) for name in found if name in case]
        for entry in case["calls"]:
            theirs = {"error": True} if "error" in entry else {"result": entry["result"]}
            results.append(((text, pair), call(tokenizer, text, pair, **entry["kwargs"]), theirs))
    for batch in expected["batches"]:
        tokenizer, texts, pairs = ours[batch["tokenizer"]], batch["texts"], batch["pairs"]
        found = call(tokenizer, texts, pairs, **batch["kwargs"])
        results.append(([*texts, *(pairs or ())], found, {"result": batch["result"]}))
        zipped = [*zip(texts, pairs, strict=True)] if pairs else texts
        assert call(tokenizer, zipped, **batch["kwargs"]) == found
    for name, facts in expected["tokenizers"].items():
        added = [ours[name].num_special_tokens_to_add(x) for x in (False, True)]
        found = {key: getattr(ours[name], key, len(ours[name])) for key in facts}
        found["num_special_tokens_to_add"] = added
        results.append(((), found, facts))
    differing = [texts for texts, found, theirs in results if found != theirs]
    assert all(any(x in OTHER_IDS for x in texts if isinstance(x, str)) for texts in differing)
    assert len(results) > 700
    assert len(differing) < 40


def test_awkward_strings(fast, tokenizers):
    """Special tokens in texts stay whole; all other ids are the original's.

    In transformers, words of 101 to 200 characters are [UNK], lone surrogates are errors, a sigma
    at the end of a word is lower-cased like others, and characters for private use, unassigned ones
    and those that its older Unicode does not know are dropped or not split.
    """
    stored = golden("tokenization/tokenization.json.gz").read_bytes()
    items = [x for x in json.loads(gzip.decompress(stored))["items"] if "text" in x]
    theirs = tokenizers.BertWordPieceTokenizer(VOCAB, lowercase=True)
    theirs.add_special_tokens([tokenizers.AddedToken(x, normalized=False) for x in USED])
    counts = collections.Counter()
    for item in items:
        text = item["text"]
        ids = fast.encode(text, add_special_tokens=False)
        assert ids == item["uncased_lower_ids"] or any(token in text for token in USED)
        try:
            counts[item["category"]] += theirs.encode(text, add_special_tokens=False).ids != ids
        except (TypeError, UnicodeEncodeError):
            counts[item["category"]] += 1
    assert +counts == AWKWARD


def test_rows_of_the_fast_tokenizer(fast, tokenizers):
    """Truncation, windows, spans and words, with random texts, strategies and lengths."""
    words = "the cat [MASK] sat, on Zürich's mat! 北京 unbelievably e-mail İx A\u030a ﬁne ½ ##ing"
    rng = random.Random(1)
    theirs = tokenizers.BertWordPieceTokenizer(VOCAB, lowercase=True)
    theirs.add_special_tokens([tokenizers.AddedToken(x, normalized=False) for x in USED])
    template, pattern = tokenizers.processors.TemplateProcessing, "[CLS]:0 $A:0 [SEP]:0"
    ids = [("[CLS]", fast.cls_token_id), ("[SEP]", fast.sep_token_id)]
    theirs._tokenizer.post_processor = template(pattern, f"{pattern} $B:1 [SEP]:1", ids)
    strategies = ("longest_first", "only_first", "only_second")
    options, equal = [*itertools.product(strategies, (8, 13), (0, 1), (True, False))], 0
    for strategy, length, stride, special in options * 8:
        text, pair = (" ".join(rng.choices(words.split(), k=rng.randrange(25))) for _ in "ab")
        pair = rng.choice([None, pair])
        try:
            theirs._tokenizer.enable_truncation(length, stride=stride, strategy=strategy)
            row = theirs.encode(text, pair, add_special_tokens=special)
        except Exception:
            continue  # ours may be more lenient
        kept = {"truncation": strategy, "max_length": length, "stride": stride}
        found = fast.encode_plus(text, pair, special, return_overflowing_tokens=True, **kept)
        rows = [[getattr(x, name) for name in Encoding._fields] for x in [row, *row.overflowing]]
        assert [[*x] for x in found.encodings] == rows
        equal += 1
    assert equal > 100


def test_lookups(fast):
    encoding = fast(["The cats sat", "on it"], ["here", "there"])
    assert encoding[0].tokens == encoding.tokens(0)
    assert encoding.char_to_token(0, 5) == 2
    assert encoding.char_to_token(0, sequence_index=1) == encoding[0].tokens.index("here")
    assert encoding.token_to_chars(1) == (0, 3)
    assert encoding.word_ids(1) == [None, 0, 1, None, 0, None]
    assert encoding.sequence_ids(1) == [None, 0, 0, None, 1, None]
    words = fast([["New", "cat's"]], is_split_into_words=True, return_offsets_mapping=True)
    assert words.word_ids(0) == [None, 0, 1, 1, 1, None]
    assert words.offset_mapping[0][2][0] == 0  # spans are those of the word


def test_kinds_of_inputs(fast, slow):
    rows = fast(texts := ["a cat", "the mat"])["input_ids"]
    for inputs in (np.array(texts), tf.constant(texts), tuple(texts)):
        assert fast(inputs)["input_ids"] == rows
    assert slow.encode(fast.tokenize("a cat")) == slow.encode(rows[0][1:-1]) == rows[0]
    cut = slow.batch_encode_plus(texts, max_length=3, pad_to_max_length=True)
    assert cut["input_ids"] == [[*row[:2], row[-1]] for row in rows]
    cls, sep = slow.cls_token_id, slow.sep_token_id
    assert slow.build_inputs_with_special_tokens([5], [6, 7]) == [cls, 5, sep, 6, 7, sep]
    assert slow.create_token_type_ids_from_sequences([5], [6, 7]) == [0, 0, 0, 1, 1, 1]
    padded = slow.pad([{"input_ids": [5, 6]}, {"input_ids": [7]}], return_tensors="np")
    assert padded.input_ids.tolist() == [[5, 6], [7, slow.pad_token_id]]
    left = BertTokenizer(VOCAB, padding_side="left")
    assert left(texts[0], padding="max_length", max_length=5).attention_mask == [0, 1, 1, 1, 1]
    assert slow.convert_tokens_to_ids(["cat", "no such"]) == [rows[0][2], slow.unk_token_id]
    assert slow.batch_decode(tf.constant([rows[0]]), skip_special_tokens=True) == ["a cat"]


def test_inputs_of_keras(fast):
    encoding = fast(["a cat", "the mat sat"], padding=True, return_tensors="tf")
    assert encoding.input_ids.dtype == tf.int32
    batch = next(iter(tf.data.Dataset.from_tensor_slices(dict(encoding)).batch(2)))
    np.testing.assert_array_equal(batch["input_ids"], encoding["input_ids"])
    inputs = {name: keras.Input([None], name=name, dtype="int32") for name in encoding}
    model = keras.Model(inputs, keras.layers.Embedding(30522, 2)(inputs["input_ids"]))
    model.compile("sgd", "mse")
    np.testing.assert_array_equal(model(encoding), model.predict(encoding, verbose=0))
    model.fit(encoding, np.zeros([*encoding.input_ids.shape, 2]), verbose=0)


def test_saved_and_added_tokens(tmp_path):
    tokenizer = BertTokenizer(VOCAB, model_max_length=99)
    assert tokenizer.add_tokens(["covidx", "cat"]) == 1
    assert tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]"]}) == 1
    assert len(tokenizer) == 30522  # they replace [unusedN]
    tokens = ["a", "covidx", "[E1]", "[", "e", "##1", "]", "cat"]
    text = "a CovidX [E1] [e1] cat"
    assert tokenizer.tokenize(text) == tokens
    paths = tokenizer.save_pretrained(tmp_path / "saved")
    assert len(paths) == len([*(tmp_path / "saved").iterdir()]) == 3
    other = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert other.tokenize(text) == tokens
    assert (other.model_max_length, other.all_special_tokens[-1]) == (99, "[E1]")
    with pytest.raises(UserError, match="space"):
        tokenizer.add_tokens("two words")


def test_folders(tmp_path, monkeypatch, tokenizers):
    folder = tmp_path / "models" / "uncased_L-12_H-768_A-12"
    folder.mkdir(parents=True)
    shutil.copy(VOCAB, folder)
    with pytest.raises(UserError, match="no vocab"):
        BertTokenizer.from_pretrained(folder)
    (folder / "uncased.txt").rename(folder / "vocab.txt")
    (folder / "bert_config.json").write_text('{"max_position_embeddings": 512}')
    with pytest.raises(UserError, match=r"https://.*/uncased_L-12_H-768_A-12.zip"):
        BertTokenizer.from_pretrained("bert-base-uncased")
    monkeypatch.setenv("BERT_TF_MODELS", str(tmp_path / "models"))
    for name in ("bert-base-uncased", "google-bert/bert-base-uncased", folder.name):
        assert BertTokenizer.from_pretrained(name).model_max_length == 512
    (only := tmp_path / "only_json").mkdir()
    theirs = tokenizers.BertWordPieceTokenizer(str(golden("vocab/cased.txt")), lowercase=False)
    theirs.save(str(only / "tokenizer.json"))
    cased = BertTokenizer.from_pretrained(only)
    assert not cased.do_lower_case
    assert cased.tokenize("Zürich") == theirs.encode("Zürich").tokens[1:-1]


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        (5, {}),
        (["a", float("nan")], {}),
        ([["a", "b", "c"]], {}),
        ("a", {"padding": "longer"}),
        ("a", {"truncation": "first"}),
        ("a", {"return_tensors": "pt"}),
        (["a", "b b"], {"return_tensors": "np"}),
        (["a", "b"], {"text_pair": ["c"]}),
    ],
)
def test_wrong_values(slow, inputs, options):
    with pytest.raises(UserError) as error:
        slow(inputs, **options)
    assert "\n" not in str(error.value)


def test_wrong_options():
    with pytest.raises(UserError, match="tokenize_chinese_chars"):
        BertTokenizer(VOCAB, tokenize_chinese_chars=False)
