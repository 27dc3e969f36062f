"""Whole word masking for languages without spaces between words."""

import pytest

from bert_tf.base.errors import UserError
from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.corpus import LineEncoder, load_segmenter
from bert_tf.tasks.pretraining.instances import create_training_instances
from bert_tf.tokenization import FullTokenizer
from tests.oracle import golden

TEXT = "北京 欢迎你, unaffable!"


def pairs(text):
    """A segmenter that splits a text into pairs of characters."""
    return [text[n : n + 2] for n in range(0, len(text), 2)]


def foreign(text):
    """A segmenter that returns words that are not in the text."""
    return [*text[:2], "x"]


def broken(text):
    """A segmenter that raises."""
    raise RuntimeError("no dictionary")


@pytest.fixture
def chinese():
    return FullTokenizer(str(golden("vocab/chinese.txt")))


def tokenize_to_words(tokenizer, segmenter, text=TEXT):
    """Returns tokens, with those of a word joined by `_`."""
    encode = LineEncoder(tokenizer, segmenter)
    (ids,) = encode([text])
    words = []
    for index in ids:
        token = tokenizer.inv_vocab[index % encode.vocab.size]
        if encode.vocab.is_inner[index]:
            words[-1] += f"_{token}"
        else:
            words.append(token)
    return words


def test_word_list_segmenter(tmp_path, chinese):
    path = tmp_path / "words.txt"
    path.write_text("北京\n欢迎\n欢迎你\n\n", encoding="utf-8")
    segmenter = load_segmenter(str(path))
    assert segmenter("北京欢迎你好") == ["北京", "欢迎你", "好"]
    unsegmented = tokenize_to_words(chinese, None)
    assert unsegmented[:5] == ["北", "京", "欢", "迎", "你"]
    # Words that are not in the list are not merged.
    assert tokenize_to_words(chinese, segmenter) == ["北_京", "欢_迎_你", *unsegmented[5:]]


def test_function_as_segmenter(chinese):
    segmenter = load_segmenter("tests.tasks.pretraining.test_word_segments:pairs")
    assert tokenize_to_words(chinese, segmenter, "北京欢迎你") == ["北_京", "欢_迎", "你"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.tasks.pretraining.test_word_segments:none", "cannot be used: .*has no attribute"),
        ("no_module_of_this_name:cut", "cannot be used: No module named"),
        ("absent/words.txt", "No such file"),
    ],
)
def test_invalid_segmenter_names(name, message):
    with pytest.raises(UserError, match=message):
        load_segmenter(name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (foreign, "failed on .*substring not found"),
        (TEXT, "failed on .*not callable"),
        (broken, "failed on .*no dictionary"),
    ],
)
def test_failing_segmenters(chinese, function, message):
    with pytest.raises(UserError, match=message):
        tokenize_to_words(chinese, function, "北京欢迎你")


def test_whole_words_are_masked(tmp_path, chinese):
    path = tmp_path / "words.txt"
    path.write_text("北京\n欢迎\n", encoding="utf-8")
    encode = LineEncoder(chinese, load_segmenter(str(path)))
    documents = [encode(["北京欢迎北京欢迎北京"] * 3) for _ in range(4)]
    options = PretrainingDataOptions(
        max_seq_length=32,
        max_predictions_per_seq=6,
        do_whole_word_mask=True,
        masked_lm_prob=0.2,
        dupe_factor=5,
    )
    instances = create_training_instances(documents, options, encode.vocab)
    first = {chinese.vocab[char] for char in "北欢"}
    for instance in instances:
        assert max(instance.input_ids) < encode.vocab.size
        assert len(instance.positions) > 1
        label_by_position = dict(zip(instance.positions, instance.labels, strict=True))
        for position, label in label_by_position.items():
            # A word split by [SEP] continues in the second segment.
            if label in first and instance.input_ids[position + 1] != encode.vocab.sep_id:
                assert position + 1 in label_by_position
