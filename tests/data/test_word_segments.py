"""Words of languages that do not write them apart, masked as a whole."""

import random

import pytest

from bert_tf.data.corpus import LineEncoder
from bert_tf.data.pretraining import Draws, Pieces, Recipe, all_instances
from bert_tf.data.word_segments import load_segmenter
from bert_tf.errors import UserError
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from tests.oracle import golden

TEXT = "北京 欢迎你, unaffable!"


def pairs(text):
    """A segmenter: two characters at a time."""
    return [text[n : n + 2] for n in range(0, len(text), 2)]


def foreign(text):
    """One that gives what is not there."""
    return [*text[:2], "x"]


def broken(text):
    """One that fails."""
    raise RuntimeError("no dictionary")


@pytest.fixture
def chinese():
    tokenizer = FullTokenizer(str(golden("vocab/chinese.txt")))
    return tokenizer, Pieces(tokenizer.vocab)


def words_of(tokenizer, pieces, segmenter, text=TEXT):
    """Tokens, those of a word joined by `_`."""
    (ids,) = LineEncoder(BatchTokenizer(tokenizer), pieces.size, segmenter)([text])
    words = []
    for index in ids:
        token = tokenizer.inv_vocab[index % pieces.size]
        if pieces.is_inner[index]:
            words[-1] += f"_{token}"
        else:
            words.append(token)
    return words


def test_a_list_of_words(tmp_path, chinese):
    path = tmp_path / "words.txt"
    path.write_text("北京\n欢迎\n欢迎你\n\n", encoding="utf-8")
    known = load_segmenter(str(path))
    assert known("北京欢迎你好") == ["北京", "欢迎你", "好"]
    plain = words_of(*chinese, None)
    assert plain[:5] == ["北", "京", "欢", "迎", "你"]
    # What is no word of the list stays as it was.
    assert words_of(*chinese, known) == ["北_京", "欢_迎_你", *plain[5:]]


def test_a_function(chinese):
    segmenter = load_segmenter("tests.data.test_word_segments:pairs")
    assert words_of(*chinese, segmenter, "北京欢迎你") == ["北_京", "欢_迎", "你"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.data.test_word_segments:none", "cannot be used: .*has no attribute"),
        ("no_module_of_this_name:cut", "cannot be used: No module named"),
        ("tests.data.test_word_segments:TEXT", "is no function"),
        ("absent/words.txt", "No such file"),
    ],
)
def test_segmenters_that_are_not_there(name, message):
    with pytest.raises(UserError, match=message):
        load_segmenter(name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (foreign, "gave 'x', which is not in what is left"),
        (broken, "failed on .*no dictionary"),
        (enumerate, r"gave \(0, '北'\), which is not"),
    ],
)
def test_segmenters_that_fail(chinese, function, message):
    with pytest.raises(UserError, match=message):
        words_of(*chinese, function, "北京欢迎你")


def test_words_are_masked_as_a_whole(tmp_path, chinese):
    tokenizer, pieces = chinese
    path = tmp_path / "words.txt"
    path.write_text("北京\n欢迎\n", encoding="utf-8")
    encode = LineEncoder(BatchTokenizer(tokenizer), pieces.size, load_segmenter(str(path)))
    documents = [encode(["北京欢迎北京欢迎北京"] * 3) for _ in range(4)]
    recipe = Recipe(32, 6, whole_words=True, masked_lm_prob=0.2)
    instances = all_instances(documents, 5, Draws(random.Random(1)), recipe, pieces)
    first = {tokenizer.vocab[char] for char in "北欢"}
    for instance in instances:
        assert max(instance.input_ids) < pieces.size
        assert len(instance.positions) > 1
        together = dict(zip(instance.positions, instance.labels, strict=True))
        for position, label in together.items():
            # A word that is cut by [SEP] has its second part in the other segment.
            if label in first and instance.input_ids[position + 1] != pieces.sep_id:
                assert position + 1 in together
