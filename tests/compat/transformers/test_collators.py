"""Collators, and `prepare_tf_dataset`."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf.compat.transformers as tr
from tests.oracle import golden

FOLDER = golden("tfbert/for_sequence_classification")
TEXTS = ["a cat", "the mat sat", "a cat sat on the mat", "cat", "mat"]


@pytest.fixture(scope="module")
def tokenizer():
    return tr.AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def rows(tokenizer):
    return [{**tokenizer(text), "label": i % 3, "text": text} for i, text in enumerate(TEXTS)]


def test_collators(tokenizer):
    rows = [{**tokenizer(text)} for text in TEXTS[:2]]
    batch = tr.DataCollatorWithPadding(tokenizer)([{**row, "label": 1} for row in rows])
    assert batch.input_ids.numpy().tolist() == tokenizer(TEXTS[:2], padding=True).input_ids
    assert batch["labels"].numpy().tolist() == [1, 1]
    tagged = [{**row, "labels": row["input_ids"]} for row in rows]
    collator = tr.DataCollatorForTokenClassification
    batch = collator(tokenizer, pad_to_multiple_of=8, return_tensors="np")(tagged)
    assert batch["labels"][0].tolist() == [*rows[0]["input_ids"], *[-100] * 4]
    batch = collator(tokenizer, "max_length", 6, label_pad_token_id=0)(tagged)
    assert batch["labels"][1].numpy().tolist() == [*rows[1]["input_ids"], 0]
    choices = [{"label_ids": i, **tokenizer(TEXTS[i : i + 2])} for i in (0, 1, 2)]
    batch = tr.DataCollatorForMultipleChoice(tokenizer)(choices)
    assert batch.input_ids.shape == batch.attention_mask.shape == (3, 2, 8)
    assert batch.labels.numpy().tolist() == [0, 1, 2]
    assert "labels" not in tr.DataCollatorForMultipleChoice(tokenizer)([tokenizer(TEXTS[:2])])
    batch = tr.DefaultDataCollator()([{"input_ids": [1, 2], "start_positions": 1}] * 2)
    assert batch["input_ids"].shape == (2, 2)
    assert batch["start_positions"].shape == (2,)
    assert tr.default_data_collator([{"label": 1.5}], "np")["labels"].tolist() == [1.5]


def test_training_with_prepared_data(tokenizer, rows):
    model = tr.TFBertForSequenceClassification.from_pretrained(FOLDER)
    collate = tr.DataCollatorWithPadding(tokenizer)
    train = model.prepare_tf_dataset(rows, batch_size=2, collate_fn=collate)
    assert len(train) == 2  # the last row is left out
    assert len(model.prepare_tf_dataset(rows, 8, tokenizer=tokenizer)) == 1
    orders = {tuple(np.concatenate([y for _, y in train])) for _ in range(20)}
    assert len(orders) > 1
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for data in (rows, columns):
        batches = [*model.prepare_tf_dataset(data, 2, shuffle=False, tokenizer=tokenizer)]
        assert np.concatenate([y for _, y in batches]).tolist() == [0, 1, 2, 0, 1]
        assert [*batches[0][0]] == ["input_ids", "token_type_ids", "attention_mask"]
        assert batches[0][0]["input_ids"].shape == (2, 5)
    model.compile("adam")
    history = model.fit(train, validation_data=train, epochs=2, verbose=0).history
    assert np.isfinite(history["val_loss"]).all()


def test_other_labels(tokenizer, rows):
    answers = tr.TFBertForQuestionAnswering.from_pretrained(FOLDER)
    positions = [{**row, "start_positions": 1, "end_positions": 2} for row in rows]
    ((_, labels),) = answers.prepare_tf_dataset(positions, tokenizer=tokenizer)
    assert {*labels} == {"start_positions", "end_positions"}
    answers.compile("adam")
    answers.fit(answers.prepare_tf_dataset(positions, tokenizer=tokenizer), verbose=0)
    data = answers.prepare_tf_dataset(rows, shuffle=False, tokenizer=tokenizer)
    assert answers.predict(data, verbose=0).start_logits.shape == (5, 8)
    choices = [{"label": 1, **tokenizer(TEXTS[:2])}] * 2
    model = tr.TFBertForMultipleChoice(answers.config)
    model.compile("adam")
    collate = tr.DataCollatorForMultipleChoice(tokenizer)
    model.fit(model.prepare_tf_dataset(choices, 2, collate_fn=collate), verbose=0)


def test_encodings(tokenizer):
    encoding = tokenizer(TEXTS[:2], padding=True)
    assert encoding.data == dict(encoding)
    assert tf.is_tensor(encoding.convert_to_tensors("tf").input_ids)
    example = tr.InputExample(guid=None, text_a="a", text_b=None, label=1)
    assert tr.InputFeatures(input_ids=[1], label=example.label).label == 1
