"""Converting examples to features, compared with the original and with its rules."""

import json
import logging
import re

import numpy as np
import pytest

from bert_tf.base.errors import UserError
from bert_tf.compat.run_classifier import (
    InputExample,
    InputFeatures,
    PaddingInputExample,
    convert_examples_to_features,
    convert_single_example,
)
from bert_tf.tasks.classification.glue import TASKS, GlueDataset, TsvTask
from bert_tf.tokenization import FullTokenizer
from tests.data import CONVERSIONS, Words
from tests.oracle import golden


def convert(example, max_seq_length: int = 9, labels=("no", "yes")) -> InputFeatures:
    return convert_single_example(0, example, labels, max_seq_length, Words())


# ---- Against the original's results --------------------------------------------------------


def conversions() -> dict[str, dict]:
    read = json.loads(golden("classifier/conversions.json").read_text("utf-8"))
    return {conversion["name"]: conversion for conversion in read}


def test_all_golden_conversions_are_listed():
    assert set(conversions()) <= set(CONVERSIONS)


def inputs_of(conversion: dict) -> tuple[FullTokenizer, TsvTask, list]:
    """Tokenizer, task and examples of a golden conversion."""
    vocab = conversion["vocab"]
    vocab_file = golden("checkpoints/main/vocab.txt" if vocab == "small" else f"vocab/{vocab}.txt")
    task = TASKS[conversion["task"]]
    split = {"dev": "eval", "test": "predict"}.get(conversion["split"], conversion["split"])
    examples = GlueDataset(task, str(golden(f"classifier/data/{task.name}"))).read(split)
    return FullTokenizer(str(vocab_file), conversion["do_lower_case"]), task, examples


@pytest.mark.parametrize("name", CONVERSIONS)
def test_features_match_the_original(name):
    expected = np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False)
    conversion = conversions()[name]
    tokenizer, task, examples = inputs_of(conversion)
    examples += [PaddingInputExample()] * conversion["num_padding_examples_at_end"]

    features = convert_examples_to_features(
        examples, list(task.labels), conversion["max_seq_length"], tokenizer
    )

    assert len(features) == conversion["num_records"]
    for key in ("input_ids", "input_mask", "segment_ids"):
        actual = np.array([getattr(feature, key) for feature in features])
        np.testing.assert_array_equal(actual, expected[key], key)
    assert [feature.label_id for feature in features] == expected["label_ids"].tolist()
    assert [feature.is_real_example for feature in features] == expected["is_real_example"].tolist()


# ---- Examples ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text_a", "text_b", "input_ids", "segment_ids"),
    [
        ("is it", "not", [1, 12, 12, 2, 13, 2, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0, 0]),
        # An empty second text is dropped; an empty first text keeps its segment.
        *(("a b c d e f g h", x, [1, 11, 11, 11, 11, 2], [0] * 6) for x in (None, "", " ")),
        ("", "b c", [1, 2, 11, 11, 2, 0], [0, 0, 1, 1, 1, 0]),
        # A second text without room leaves no separator.
        ("a", "b", [1, 11, 2, 0], [0] * 4),
    ],
)
def test_convert_example(text_a, text_b, input_ids, segment_ids):
    features = convert(InputExample("dev-1", text_a, text_b, "yes"), len(input_ids))
    mask = [int(x > 0) for x in input_ids]
    assert features == InputFeatures(input_ids, mask, segment_ids, label_id=1, is_real_example=True)


def test_padding_example_is_all_zeros():
    features = convert(PaddingInputExample(), max_seq_length=3)
    assert features == InputFeatures([0] * 3, [0] * 3, [0] * 3, label_id=0, is_real_example=False)


@pytest.mark.parametrize(
    ("label", "labels", "message"),
    [
        ("maybe", ["no", "yes"], "Label 'maybe' of example dev-7 is not one of no, yes"),
        (None, ["no", "yes"], "Label None of example dev-7"),
        ("high", [], "Label 'high' of example dev-7 is not a number"),
    ],
)
def test_unknown_labels_are_rejected(label, labels, message):
    with pytest.raises(UserError, match=re.escape(message)):
        convert(InputExample("dev-7", "a", None, label), labels=labels)


def test_label_is_a_number_without_label_list():
    assert convert(InputExample("dev-1", "a", None, "3.8"), labels=[]).label_id == 3.8


def test_first_five_examples_are_logged(caplog, tmp_path):
    examples = [InputExample(f"train-{i}", f"word{i}", None, "yes") for i in range(7)]
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", *(f"word{i}" for i in range(7))]))
    with caplog.at_level(logging.DEBUG, logger="bert_tf.data.features"):
        convert_examples_to_features(examples, ["no", "yes"], 5, FullTokenizer(str(vocab)))
    logged = [f"train-{i}" for i in range(7) if f"train-{i}" in caplog.text]
    assert logged == [f"train-{i}" for i in range(5)]
    assert "tokens: [CLS] word3 [SEP]" in caplog.text
    assert "input_ids: 1 6 2 0 0" in caplog.text
    assert "label_id: 1" in caplog.text
