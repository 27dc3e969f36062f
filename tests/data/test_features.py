"""Conversion of examples to features, compared with the original and its rules."""

import json
import logging
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.features import (
    InputExample,
    InputFeatures,
    PaddingInputExample,
    convert_examples_to_features,
    convert_single_example,
    pack,
    truncate_seq_pair,
    truncate_to_fit,
)
from bert_tf.errors import UserError
from bert_tf.tasks.classification.glue import TASKS, TsvTask, read_examples
from bert_tf.tokenization import FullTokenizer
from tests.data import CONVERSIONS, Words
from tests.oracle import ROOT, golden


def convert(example, max_seq_length: int = 9, labels=("no", "yes")) -> InputFeatures:
    return convert_single_example(0, example, labels, max_seq_length, Words())


# ---- Against the original's results --------------------------------------------------------


def load_conversions() -> dict[str, dict]:
    conversions = json.loads(golden("classifier/conversions.json").read_text("utf-8"))
    return {conversion["name"]: conversion for conversion in conversions}


def test_all_golden_conversions_are_listed():
    assert set(load_conversions()) <= set(CONVERSIONS)


def load_inputs(conversion: dict) -> tuple[FullTokenizer, TsvTask, list]:
    """Returns the tokenizer, task and examples of a golden conversion."""
    vocab = conversion["vocab"]
    vocab_file = golden("checkpoints/main/vocab.txt" if vocab == "small" else f"vocab/{vocab}.txt")
    task = TASKS[conversion["task"]]
    examples = read_examples(task, conversion["split"], str(golden(f"classifier/data/{task.name}")))
    return FullTokenizer(str(vocab_file), conversion["do_lower_case"]), task, examples


@pytest.mark.parametrize("name", CONVERSIONS)
def test_features_match_the_original(name):
    expected = np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False)
    conversion = load_conversions()[name]
    tokenizer, task, examples = load_inputs(conversion)
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


def test_pair_truncation_matches_the_original():
    edge_cases = json.loads(golden("classifier/edge_cases.json").read_text("utf-8"))
    for case in edge_cases["truncate_seq_pair"]:
        tokens_a = [f"a{i}" for i in range(case["len_a"])]
        tokens_b = [f"b{i}" for i in range(case["len_b"])]
        truncate_seq_pair(tokens_a, tokens_b, case["max_length"])
        assert (len(tokens_a), len(tokens_b)) == (case["kept_a"], case["kept_b"]), case


# ---- Truncation ----------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 130))
def test_pair_truncation_follows_the_original_rule(len_a, len_b, max_length):
    all_a, all_b = list(range(len_a)), list(range(len_b))
    tokens_a, tokens_b = all_a.copy(), all_b.copy()
    truncate_seq_pair(tokens_a, tokens_b, max_length)
    assert len(tokens_a) + len(tokens_b) == min(len_a + len_b, max_length)
    assert tokens_a == all_a[: len(tokens_a)]
    assert tokens_b == all_b[: len(tokens_b)]
    # The original's rule, token by token.
    kept_a, kept_b = len_a, len_b
    while kept_a + kept_b > max_length:
        if kept_a > kept_b:
            kept_a -= 1
        else:
            kept_b -= 1
    assert (len(tokens_a), len(tokens_b)) == (kept_a, kept_b)


def test_negative_max_length_is_rejected():
    with pytest.raises(ValueError, match="max_length=-1"):
        truncate_seq_pair(["a"], ["b"], -1)


@pytest.mark.parametrize(
    ("a", "b", "max_seq_length", "kept"),
    [
        ("a b c d", None, 5, ("a b c", None)),
        ("a b c d", "", 5, ("a b c", "")),
        ("a b c d", None, 6, ("a b c d", None)),
        ("a b c d", None, 2, ("", None)),
        ("a b c d", "e f", 7, ("a b", "e f")),
        ("a b", "c d", 6, ("a b", "c")),
        ("a b", "c d", 3, ("", "")),
    ],
)
def test_truncation_to_max_seq_length(a, b, max_seq_length, kept):
    tokens_a, tokens_b = a.split(), None if b is None else b.split()
    truncate_to_fit(tokens_a, tokens_b, max_seq_length)
    expected_a, expected_b = kept
    assert tokens_a == expected_a.split()
    assert tokens_b == (None if expected_b is None else expected_b.split())


@pytest.mark.parametrize(
    ("tokens_b", "max_seq_length", "special"),
    [(None, 1, 2), ([], 1, 2), (["b"], 2, 3), (["b"], 0, 3)],
)
def test_no_space_for_special_tokens_is_rejected(tokens_b, max_seq_length, special):
    expected = f"max_seq_length={max_seq_length} is too small: the {special} special tokens"
    with pytest.raises(UserError, match=expected):
        truncate_to_fit(["a"], tokens_b, max_seq_length)


# ---- Packing -------------------------------------------------------------------------------


def test_pack_single_text():
    packed = pack(["is", "it"], None, 6, Words())
    assert packed.tokens == ["[CLS]", "is", "it", "[SEP]"]
    assert packed.input_ids == [1, 12, 12, 2, 0, 0]
    assert packed.input_mask == [1, 1, 1, 1, 0, 0]
    assert packed.segment_ids == [0, 0, 0, 0, 0, 0]


def test_pack_pair():
    packed = pack(["is", "it"], ["not"], 9, Words())
    assert packed.tokens == ["[CLS]", "is", "it", "[SEP]", "not", "[SEP]"]
    assert packed.input_ids == [1, 12, 12, 2, 13, 2, 0, 0, 0]
    assert packed.input_mask == [1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert packed.segment_ids == [0, 0, 0, 0, 1, 1, 0, 0, 0]


def test_pack_full_sequence_has_no_padding():
    assert pack(["a"], ["b"], 5, Words()).input_mask == [1, 1, 1, 1, 1]


def test_pack_rejects_too_many_tokens():
    with pytest.raises(ValueError, match="5 tokens do not fit into max_seq_length=4"):
        pack(["a"], ["b"], 4, Words())


def test_pack_does_not_modify_its_arguments():
    tokens_a, tokens_b = ["a"], ["b"]
    pack(tokens_a, tokens_b, 8, Words())
    assert (tokens_a, tokens_b) == (["a"], ["b"])


# ---- Examples ------------------------------------------------------------------------------


def test_convert_example():
    features = convert(InputExample("dev-1", "is it", "not", "yes"))
    assert features == InputFeatures(
        input_ids=[1, 12, 12, 2, 13, 2, 0, 0, 0],
        input_mask=[1, 1, 1, 1, 1, 1, 0, 0, 0],
        segment_ids=[0, 0, 0, 0, 1, 1, 0, 0, 0],
        label_id=1,
        is_real_example=True,
    )


@pytest.mark.parametrize("text_b", [None, "", " "])
def test_empty_second_text_is_dropped(text_b):
    features = convert(InputExample("dev-1", "a b c d e f g h", text_b, "no"), max_seq_length=6)
    assert features.input_ids == [1, 11, 11, 11, 11, 2]
    assert features.segment_ids == [0] * 6


def test_empty_first_text_keeps_its_segment():
    features = convert(InputExample("dev-1", "", "b c", "no"), max_seq_length=6)
    assert features.input_ids == [1, 2, 11, 11, 2, 0]
    assert features.segment_ids == [0, 0, 1, 1, 1, 0]


def test_fully_truncated_second_text_adds_no_separator():
    features = convert(InputExample("dev-1", "a", "b", "no"), max_seq_length=4)
    assert features.input_ids == [1, 11, 2, 0]


def test_padding_example_is_all_zeros():
    features = convert(PaddingInputExample(), max_seq_length=3)
    assert features == InputFeatures([0] * 3, [0] * 3, [0] * 3, label_id=0, is_real_example=False)


@pytest.mark.parametrize(
    ("label", "labels", "message"),
    [
        ("maybe", ["no", "yes"], "Label 'maybe' of example dev-7 is not one of no, yes"),
        ("Yes", ["no", "yes"], "Label 'Yes' of example dev-7"),
        (None, ["no", "yes"], "Example dev-7 has no label"),
        ("high", [], "Label 'high' of example dev-7 is not a number"),
    ],
)
def test_invalid_labels_are_rejected(label, labels, message):
    with pytest.raises(UserError, match=re.escape(message)):
        convert(InputExample("dev-7", "a", None, label), labels=labels)


def test_label_without_label_list_is_a_number():
    assert convert(InputExample("dev-1", "a", None, "3.8"), labels=[]).label_id == 3.8


def test_too_small_max_seq_length_is_rejected():
    example = InputExample("dev-1", "a", "b", "no")
    with pytest.raises(UserError, match="max_seq_length=2 is too small"):
        convert(example, max_seq_length=2)


def test_first_five_examples_are_logged(caplog, monkeypatch):
    # An earlier test may have run a script, which disables propagation to caplog.
    monkeypatch.setattr(logging.getLogger("bert_tf"), "propagate", True)
    examples = [InputExample(f"train-{i}", f"word{i}", None, "yes") for i in range(7)]
    with caplog.at_level(logging.DEBUG, logger="bert_tf.data.features"):
        convert_examples_to_features(examples, ["no", "yes"], 5, Words())
    logged = [f"train-{i}" for i in range(7) if f"train-{i}" in caplog.text]
    assert logged == [f"train-{i}" for i in range(5)]
    assert "tokens: [CLS] word3 [SEP]" in caplog.text
    assert "label: yes (id = 1)" in caplog.text


def test_data_preparation_does_not_import_tensorflow():
    code = (
        "import sys, bert_tf.tasks.classification.glue, bert_tf.data.packing; print(*sys.modules)"
    )
    modules = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "bert_tf.data.tsv" in modules
    assert not {"tensorflow", "keras"} & set(modules)
