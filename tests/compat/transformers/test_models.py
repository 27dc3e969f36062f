"""The TensorFlow classes of transformers 4: outputs, losses, training, and how code calls them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf.compat.transformers as tr
from bert_tf.base.errors import UserError
from tests.oracle import golden

FOLDER = golden("tfbert/for_sequence_classification")
# Folder -> class, and the outputs of the head.
CLASSES = {
    "bert_model": ("TFBertModel", ["last_hidden_state", "pooler_output"]),
    "for_pretraining": ("TFBertForPreTraining", ["prediction_logits", "seq_relationship_logits"]),
    "for_masked_lm": ("TFBertForMaskedLM", ["logits"]),
    "for_sequence_classification": ("TFBertForSequenceClassification", ["logits"]),
    "for_multiple_choice": ("TFBertForMultipleChoice", ["logits"]),
}


def read(folder):
    return np.load(golden(f"tfbert/{folder}/expected.npz"))


def with_prefix(arrays, prefix):
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def assert_outputs(outputs, expected):
    """Compares outputs with those of transformers; of large ones, every eighth column is stored."""
    found = {}
    for name, value in outputs.items():
        items = value if isinstance(value, tuple) else [value]
        keys = [f"{name}_{i}" for i in range(len(items))] if isinstance(value, tuple) else [name]
        found |= dict(zip(keys, map(np.asarray, items), strict=True))
    for name, value in found.items():
        if name in expected:
            np.testing.assert_allclose(value, expected[name], atol=2e-5, err_msg=name)
        else:
            every_eighth = expected[f"{name}_every8"]
            np.testing.assert_allclose(value[..., ::8], every_eighth, atol=2e-5, err_msg=name)
            np.testing.assert_array_equal(value.argmax(-1), expected[f"{name}_argmax"])


@pytest.mark.parametrize("folder", CLASSES)
def test_outputs_and_losses(folder):
    name, head = CLASSES[folder]
    expected = read(folder)
    model = getattr(tr, name).from_pretrained(golden(f"tfbert/{folder}"))
    inputs = with_prefix(expected, "in_")
    outputs = model(**inputs, output_hidden_states=True, output_attentions=True, training=False)
    assert [*outputs.keys()] == [*head, "hidden_states", "attentions"]
    assert_outputs(outputs, with_prefix(expected, "out_"))
    assert_outputs(model(inputs["input_ids"]), with_prefix(expected, "ids_only_"))
    if labels := with_prefix(expected, "label_"):
        outputs = model(inputs, **labels)
        assert [*outputs.keys()] == ["loss", *head]
        np.testing.assert_allclose(outputs.loss, expected["out_loss"], atol=1e-5)


CROSS = np.load(golden("tfbert/cross.npz"))


@pytest.mark.parametrize(
    "name", [n for n in CROSS if "__" in n and not n.endswith(("argmax", "sumexp", "row_0_1"))]
)
def test_class_from_the_folder_of_another(name):
    class_name, folder, output = name.split("__")
    model = getattr(tr, class_name).from_pretrained(golden(f"tfbert/{folder}"))
    outputs = model(with_prefix(CROSS, "in_"), output_hidden_states=True)
    value = outputs.hidden_states[2] if output == "hidden_states_2" else None
    value = outputs[output.removesuffix("_every8")] if value is None else value
    value = np.asarray(value)[..., ::8] if output.endswith("_every8") else value
    np.testing.assert_allclose(value, CROSS[name], atol=2e-5)


def classifier(**settings):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tr.TFBertForSequenceClassification.from_pretrained(FOLDER, **rates, **settings)


@pytest.mark.parametrize("kind", ["internal_loss", "given_loss", "gradient_tape"])
def test_training(kind):
    expected = np.load(FOLDER / "training.npz")
    inputs, labels = with_prefix(read("for_sequence_classification"), "in_"), expected["labels"]
    model, optimizer, losses = classifier(), keras.optimizers.Adam(1e-3), []
    if kind == "gradient_tape":
        for _ in range(5):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model({**inputs, "labels": labels}, training=True).loss)
            gradients = tape.gradient(loss, model.trainable_variables)
            if not losses:
                norms = [0.0 if g is None else np.linalg.norm(g) for g in gradients]
                np.testing.assert_allclose(norms, expected["gradient_norms"], atol=1e-5)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            losses.append(float(loss))
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        own = {} if kind == "internal_loss" else {"loss": loss, "metrics": ["accuracy"]}
        model.compile(optimizer, **own)
        history = model.fit(inputs, labels, batch_size=3, epochs=5, shuffle=False, verbose=0)
        losses = history.history["loss"]
        assert ("accuracy" in history.history) == (kind == "given_loss")
    np.testing.assert_allclose(losses, expected[kind], atol=1e-4)
    np.testing.assert_allclose(model(inputs).logits, expected[f"{kind}_logits"], atol=2e-4)


def test_ways_to_pass_inputs_and_to_take_outputs():
    model = classifier()
    inputs = with_prefix(read("for_sequence_classification"), "in_")
    ids, mask, types = (inputs[n] for n in ("input_ids", "attention_mask", "token_type_ids"))
    outputs = model(inputs)
    expected = np.asarray(outputs.logits)
    assert outputs[0] is outputs.logits is outputs["logits"] is outputs.to_tuple()[0]
    assert "logits" in outputs
    assert outputs.get("loss") is None
    (unpacked,) = outputs
    assert unpacked is outputs.logits
    for other in (
        model(ids, mask, types),
        model([ids, mask, types]),
        model(ids, attention_mask=mask, token_type_ids=types),
        model(tf.constant(ids), tf.constant(mask), token_type_ids=tf.constant(types)),
        model(inputs=inputs, return_dict=True),
        model.predict(inputs, verbose=0),
    ):
        np.testing.assert_allclose(other.logits, expected, atol=1e-5)
    words = model.bert.embeddings.word_embeddings.numpy()[ids]
    found = model(inputs_embeds=words, attention_mask=mask, token_type_ids=types).logits
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for arguments in ({"position_ids": ids}, {"input_ids": None}, {"inputs": {"input_mask": mask}}):
        with pytest.raises(UserError, match="expected inputs among input_ids, attention_mask"):
            model(**arguments)


def test_functional_models(tmp_path):
    shapes = {name: keras.Input((16,), dtype="int32", name=name) for name in ("ids", "mask")}
    ids, mask = shapes.values()
    bert = tr.TFBertModel.from_pretrained(golden("tfbert/bert_model"))
    rows = np.ones((4, 16), "int32")
    expected = np.asarray(bert(rows, rows).pooler_output)
    for pooled in (
        bert([ids, mask])[1],
        bert(ids, attention_mask=mask).pooler_output,
        bert(input_ids=ids, attention_mask=mask)["pooler_output"],
        bert.bert({"input_ids": ids, "attention_mask": mask})[1],
    ):
        model = keras.Model([ids, mask], pooled)
        np.testing.assert_allclose(model.predict([rows, rows], verbose=0), expected, atol=1e-5)
    bert.trainable = False
    model = keras.Model([ids, mask], keras.layers.Dense(2)(bert(ids, mask)[0][:, 0, :]))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit([rows, rows], np.array([0, 1, 0, 1]), verbose=0)
    assert len(model.trainable_weights) == 2
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    values = [each.predict([rows, rows], verbose=0) for each in (model, loaded)]
    np.testing.assert_array_equal(*values)


def test_saving_and_loading(tmp_path):
    model = classifier()
    inputs = with_prefix(read("for_sequence_classification"), "in_")
    expected = np.asarray(model(inputs).logits)
    model.save_pretrained(tmp_path / "hf")
    model.save(tmp_path / "model.keras")
    other = tr.TFBertForSequenceClassification(model.config)
    other.load_weights(FOLDER / "tf_model.h5")
    cls = tr.TFAutoModelForSequenceClassification
    loaded = [
        cls.from_pretrained(tmp_path / "hf"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ]
    for each in (*loaded, other):
        np.testing.assert_allclose(each(inputs).logits, expected, atol=1e-6)
    assert loaded[0].config.id2label == {0: "negative", 1: "neutral", 2: "positive"}


def test_layers_and_freezing():
    model = classifier()
    assert [layer.name for layer in model.layers][::2] == ["bert", "classifier"]
    for layer in model.bert.encoder.layer[:1]:
        layer.trainable = False
    assert len(model.trainable_weights) == 41 - 16
    model.layers[0].trainable = False
    assert len(model.trainable_weights) == 2


def test_configuration_and_new_heads(monkeypatch):
    folder = golden("tfbert/bert_model")
    config = tr.BertConfig.from_pretrained(folder, num_labels=5, output_hidden_states=True)
    assert (config.num_labels, config.hidden_size, len(config.label2id)) == (5, 32, 5)
    model = tr.TFBertForTokenClassification.from_pretrained(folder, config=config)
    ids = np.ones((2, 8), "int32")
    outputs = model(ids, labels=np.array([[1] * 4 + [-100] * 4] * 2))
    assert outputs.logits.shape == (2, 8, 5)
    assert len(outputs.hidden_states) == 3
    assert outputs.loss.shape == (1,)
    answers = tr.TFBertForQuestionAnswering.from_pretrained(FOLDER)
    outputs = answers(ids, start_positions=np.array([0, 1]), end_positions=np.array([1, 2]))
    assert outputs.loss.shape == (2,)
    answers.compile("adam")
    labels = {"start_positions": np.array([0, 1]), "end_positions": np.array([1, 2])}
    answers.fit({"input_ids": ids, **labels}, verbose=0)
    answers.fit({"input_ids": ids}, labels, verbose=0)
    monkeypatch.setenv("BERT_TF_MODELS", str(FOLDER.parent))
    named = tr.TFAutoModel.from_pretrained("someone/for_sequence_classification", from_pt=True)
    assert named.config.num_hidden_layers == 2
    with pytest.raises(UserError, match="No model bert-base-uncased"):
        tr.TFBertModel.from_pretrained("bert-base-uncased")


@pytest.mark.parametrize("name", ["pipeline", "TFRobertaModel", "TrainingArguments", "BertModel"])
def test_names_that_are_missing(name):
    with pytest.raises(ImportError, match=f"There is no {name} here") as error:
        getattr(tr, name)
    assert ("Use TFBertModel" in str(error.value)) == (name == "BertModel")


def test_advice_for_names_that_are_missing():
    texts, pairs = ["a cat", "the mat"], ["sat", "sat on it"]
    tokenizer, model = tr.BertTokenizer.from_pretrained(FOLDER), classifier()
    inputs = tokenizer(texts, pairs, padding=True, truncation=True, return_tensors="tf")
    model.compile("adam")
    model.fit(inputs, np.array([0, 1]), verbose=0)
    assert model(inputs).logits.shape == (2, 3)


class Scorer(tr.TFBertPreTrainedModel, tr.TFSequenceClassificationLoss):
    """A user's own head."""

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        self.bert = tr.TFBertMainLayer(config, name="bert")
        self.score = keras.layers.Dense(
            config.num_labels, kernel_initializer=tr.get_initializer(0.02)
        )

    def call(self, inputs, **kwargs):
        return self.score(self.bert(inputs, **kwargs)[1])


def test_own_head(tmp_path):
    model = Scorer.from_pretrained(FOLDER)
    inputs = with_prefix(read("for_sequence_classification"), "in_")
    expected = tr.TFBertModel.from_pretrained(FOLDER)(inputs).pooler_output
    np.testing.assert_allclose(model.bert(inputs).pooler_output, expected, atol=1e-6)
    model.compile("adam")
    labels = np.arange(len(inputs["input_ids"])) % 3
    assert np.isfinite(model.fit(inputs, labels, verbose=0).history["loss"]).all()
    with pytest.raises(UserError, match="head of your own"):
        model.save_pretrained(tmp_path)
    model.save_weights(tmp_path / "my.weights.h5")
    other = Scorer.from_pretrained(FOLDER)
    other(inputs)
    other.load_weights(tmp_path / "my.weights.h5")
    np.testing.assert_array_equal(other(inputs), model(inputs))


def test_options_of_constructors():
    ids = np.ones((2, 8), "int32")
    model = tr.TFBertModel.from_pretrained(FOLDER, add_pooling_layer=False, trainable=False)
    assert [*model(ids).keys()] == ["last_hidden_state"]
    assert not model.trainable_weights
    assert tr.is_tf_available()
    assert not tr.is_torch_available()


def test_create_optimizer():
    optimizer, schedule = tr.create_optimizer(1e-3, 10, 2, weight_decay_rate=0.01)
    assert float(schedule(2)) == pytest.approx(1e-3 * 0.8)
    model = classifier()
    model.compile(optimizer)
    dataset = tf.data.Dataset.from_tensor_slices(
        ({"input_ids": np.ones((4, 8), "int32")}, np.array([0, 1, 2, 0]))
    )
    history = model.fit(dataset.batch(2), epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
