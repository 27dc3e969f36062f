"""Containers of texts, and `encode`, which makes a Keras model's inputs of them."""

import os

import keras
import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow as tf

from bert_tf import BertClassifier, encode
from bert_tf.api.text_inputs import items_of
from bert_tf.base.errors import UserError
from tests.oracle import ROOT

SMALL_BERT = ROOT / "examples" / "small_bert"
TEXTS = ["a good film", "the bad plot"]


@pytest.mark.parametrize(
    "container",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object)[:, None],
        pd.Series(TEXTS),
        pd.Series(TEXTS).astype("category"),
        pd.DataFrame({"text": TEXTS}),
        pl.Series(TEXTS),
        pl.DataFrame({"text": TEXTS}),
        dict.fromkeys(TEXTS).keys(),
        dict(enumerate(TEXTS)).values(),
    ],
)
def test_containers_of_texts(container):
    assert list(items_of(container)) == TEXTS


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]}),
        pl.DataFrame({"a": TEXTS, "b": TEXTS[::-1]}),
        np.array([TEXTS, TEXTS[::-1]]).T,
        zip(TEXTS, TEXTS[::-1], strict=True),
    ],
)
def test_rows_of_tables(table):
    assert list(items_of(table)) == [tuple(TEXTS), tuple(TEXTS[::-1])]


@pytest.mark.parametrize("container", ["a text", {"a": 1}, {"a"}, 3, None])
def test_other_objects_are_refused(container):
    with pytest.raises(UserError, match=f"Received: {type(container).__name__}"):
        list(items_of(container))


def test_encoded_texts_train_a_keras_model(caplog):
    inputs = encode(pd.Series(TEXTS), SMALL_BERT, 8)
    assert {name: (x.shape, x.dtype) for name, x in inputs.items()} == dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids"), ((2, 8), np.int32)
    )
    assert (inputs["input_ids"] > 0).tolist() == inputs["input_mask"].astype(bool).tolist()
    assert encode([("good", "bad")], SMALL_BERT)["segment_ids"].shape == (1, 128)
    model = BertClassifier.from_checkpoint(SMALL_BERT, num_labels=2)
    model.compile("sgd", {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    assert np.isfinite(model.fit(inputs, np.array([1, 0]), verbose=0).history["loss"]).all()
    assert not caplog.text
    encode(["good " * 9, "a"], SMALL_BERT, 8)
    assert "1 of 2 texts is longer than max_seq_length=8 and was truncated" in caplog.text


def test_encode_checks_texts(caplog):
    encode(["12", "13"], SMALL_BERT)
    assert "Inputs: 2 of 2 texts are numbers, dates or ids, such as '12'" in caplog.text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", float("nan")], r"Input 1: expected a string.* Received: nan"),
        ([["good", "film"]], r"Input 0: .*Received: \['good', 'film'\]"),
        (tf.constant(TEXTS), r"Input 0: .*Received: <tf.Tensor"),
        ([tf.constant("a")], r"Input 0: .*Received: <tf.Tensor"),
        (tf.data.Dataset.from_tensors("a"), r"Input 0: .*Received: <tf.Tensor"),
    ],
)
def test_encode_refuses_what_is_no_text(texts, message):
    with pytest.raises(UserError, match=message):
        encode(texts, SMALL_BERT)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_length": 32}, "no argument 'max_length'. Use max_seq_length"),
        ({"zzz": 1}, "encode has no argument 'zzz'"),
    ],
)
def test_arguments_of_other_libraries(flags, message):
    with pytest.raises(UserError, match=message):
        encode(TEXTS, SMALL_BERT, **flags)


def test_encode_follows_the_model(tmp_path):
    folder = tmp_path / "cased_L-12_H-768_A-12"
    folder.mkdir()
    for file in SMALL_BERT.iterdir():
        os.link(file, folder / file.name)
    cased, uncased = (encode(["A Film"], x)["input_ids"] for x in (folder, SMALL_BERT))
    assert (cased != uncased).any()
    # The folder's name says that the model is cased.
    with pytest.raises(UserError, match="do_lower_case"):
        encode(["A Film"], folder, do_lower_case=True)


@pytest.mark.parametrize(
    "texts", [TEXTS, tuple(TEXTS), "a", np.array(TEXTS), pd.Series(TEXTS), keras.ops.ones((2, 3))]
)
def test_texts_given_to_a_keras_model(texts):
    model = BertClassifier.from_checkpoint(SMALL_BERT, num_labels=2)
    model.compile("sgd", {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    for call in (model.predict, model.evaluate, lambda x: model.fit(x, np.array([0, 1])), model):
        with pytest.raises(ValueError, match=r"such as bert_tf\.encode\(texts, folder\) returns"):
            call(texts)
