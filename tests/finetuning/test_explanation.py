"""Integrated gradients: exact on known functions, and complete and in the right units on models."""

import re
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import TextClassifier, TextRegressor
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.finetuning.explanation import Explanation, explain
from bert_tf.tasks import classification
from bert_tf.tokenization import FullTokenizer
from tests.conftest import WORDS
from tests.tasks.classification.test_custom_runs import custom_options, sentences, write

# The columns of labels of each model.
MODELS = ("label", "praise,slow", "price", "price,weight")


@pytest.fixture(scope="module")
def predictors(tiny, tmp_path_factory):
    """A predictor for each problem type, by columns of labels."""
    folder = tmp_path_factory.mktemp("explained")
    rows = []
    for text in sentences(120):
        is_good, is_slow = (int(word in text.split()) for word in ("good", "slow"))
        label = "praise" if is_good else "other"
        rows.append([text, label, is_good, is_slow, 1000.5 + 500 * is_good, is_slow - 0.25])
    header = ("text", "label", "praise", "slow", "price", "weight")
    write(folder / "data", "train.tsv", rows, header)
    found = {}
    flags = {"num_train_epochs": 10.0, "learning_rate": 2e-3, "max_seq_length": 16}
    for columns in MODELS:
        out = str(folder / columns)
        run = {**flags, "label_column": columns, "output_dir": out, "do_train": True}
        classification.run(custom_options(tiny, folder, **run))
        found[columns] = Predictor(out)
    return found


def outputs_of_masks(predictor, item):
    """Returns the prediction for an input whose word pieces are all `[MASK]`."""
    task = predictor._predict._task
    examples = task.from_inputs([item])
    rows = dict(task.featurize(examples, "predict"))
    is_special = np.isin(rows["input_ids"], [0, 2, 3])  # [PAD], [CLS], [SEP]
    rows["input_ids"] = np.where(is_special, rows["input_ids"], 4)
    return task.decode(examples, predictor._predict._inference.predict(rows))[0]


def logit(probability):
    return np.log(probability / (1 - probability))


class Squares:
    """A model with the output sum of c_s |x_s|^2, for the embedding x_s of token s."""

    def __init__(self, table, weights):
        self.bert = SimpleNamespace(embeddings=SimpleNamespace(word_embeddings=tf.constant(table)))
        self.weights, self.input_names = weights, ("input_ids", "input_mask", "segment_ids")

    def __call__(self, inputs):
        squares = tf.reduce_sum(inputs["word_embeddings"] ** 2, -1)  # [B, S]
        return {"logits": tf.reduce_sum(squares * self.weights, -1)}


def test_exact_scores_of_a_known_function(tiny):
    """The score of token s is c_s (|x_s|^2 - |baseline|^2), with two steps or more."""
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    table = np.random.default_rng(0).normal(size=(len(tokenizer.vocab), 3)).astype(np.float32)
    tokens = ["[CLS]", "film", "good", "[SEP]", "[PAD]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    mask = [[1, 1, 1, 1, 0]]
    row = {"input_ids": np.array([ids]), "input_mask": np.array(mask)}
    row["segment_ids"] = np.zeros_like(row["input_ids"])
    weights = np.float32([5, 1, -2, 3])
    model = Squares(table, weights)
    explanation = explain(model, tf.identity, "x", row, ("film good",), tokenizer, steps=2)
    norms = (table**2).sum(1)
    expected = weights[1:3] * (norms[ids[1:3]] - norms[tokenizer.vocab["[MASK]"]])
    np.testing.assert_allclose(explanation.scores, expected, rtol=1e-5)
    assert explanation.difference == pytest.approx(expected.sum(), rel=1e-5)
    assert explanation.completeness < 1e-5


def test_scores_find_the_word_that_decides(predictors):
    predictor = predictors["label"]
    text = "The film,  was GOOD  it"
    explanation = predictor.explain(text)
    assert explanation.label == predictor(text).label == "praise"
    assert explanation.tokens == ["the", "film", "[UNK]", "was", "good", "it"]
    assert [text[a:b] for a, b in explanation.offsets] == ["The", "film", ",", "was", "GOOD", "it"]
    assert explanation.text_indices == [0] * 6
    assert int(np.argmax(explanation.scores)) == 4
    other = predictor.explain(text, "other")
    assert other.label == "other"
    assert int(np.argmin(other.scores)) == 4


@pytest.mark.parametrize("item", ["a good film", ("the bad plot was", "good story it was slow")])
@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ("label", None),
        ("praise,slow", "slow"),
        ("price", None),
        ("price,weight", "weight"),
    ],
)
def test_scores_sum_to_the_difference_of_outputs(predictors, columns, label, item):
    explanation = predictors[columns].explain(item, label, steps=256)
    difference = explanation.difference
    assert explanation.completeness < 0.05 * abs(difference)
    assert sum(explanation.scores) == pytest.approx(difference, abs=explanation.completeness + 1e-5)
    expected = predictors[columns](item), outputs_of_masks(predictors[columns], item)
    if columns == "price":
        assert difference == pytest.approx(expected[0] - expected[1], rel=1e-3)
    elif columns == "price,weight":
        assert difference == pytest.approx(expected[0][label] - expected[1][label], rel=1e-3)
    elif columns == "praise,slow":
        logits = [logit(prediction.probabilities[label]) for prediction in expected]
        assert difference == pytest.approx(logits[0] - logits[1], rel=1e-3)


def test_pairs_and_truncated_texts(predictors):
    predictor = predictors["label"]
    words = WORDS[:10]
    explanation = predictor.explain((" ".join(words), "good plot"))
    # 16 tokens, of which three are special.
    assert explanation.tokens == [*words, "good", "plot"]
    assert explanation.text_indices == [0] * 10 + [1] * 2
    assert explanation.offsets[-2:] == [(0, 4), (5, 9)]
    long_text = " ".join(words * 3)
    assert predictor.explain(long_text).tokens == (words * 3)[:14]
    assert predictor.explain((long_text, "good")).tokens == [*(words * 3)[:12], "good"]
    assert predictor.explain("").scores == []


def test_inaccurate_scores_cause_a_warning(predictors, run_log):
    for steps in (2, 256):
        explanation = predictors["label"].explain("a good film", steps=steps)
        message = f"is off by {explanation.completeness:.2g}: pass steps={4 * steps}"
        assert (message in run_log.text) == (steps == 2)


def test_many_steps_are_computed_in_parts(predictors, monkeypatch):
    text = "the good film was not slow"
    expected = predictors["label"].explain(text, steps=16)
    monkeypatch.setattr("bert_tf.finetuning.explanation._MAX_BATCH_TOKENS", 40)
    actual = predictors["label"].explain(text, steps=16)
    np.testing.assert_allclose(actual.scores, expected.scores, rtol=1e-4, atol=1e-6)
    assert actual.difference == pytest.approx(expected.difference, rel=1e-4)


FEATURES = {"script": "extract_features", "layers": "-1"}


@pytest.mark.parametrize(
    ("columns", "flags", "arguments", "message"),
    [
        ("label", {}, {"label": "prise"}, "label must be one of: other, praise. Received: 'prise'"),
        ("price,weight", {}, {}, "label must be one of: price, weight. Received: None"),
        ("price", {}, {"label": "price"}, "must be one of: none, for a model with a single number"),
        ("label", {"long_text": "windows"}, {}, "needs a shorter text, or long_text="),
        ("label", {"engine": "onnx"}, {}, 'pass engine="tensorflow" to'),
        ("label", FEATURES, {}, "a model that was fine-tuned with run_class"),
    ],
)
def test_unsupported_explanations(predictors, columns, flags, arguments, message):
    predictor = predictors[columns]
    if flags:
        predictor = Predictor(predictor._model, **flags)
    with pytest.raises(UserError, match=message):
        predictor.explain(" ".join(WORDS * 3), **arguments)


def test_only_one_text_is_explained(predictors):
    for texts in (WORDS[:1], np.array(WORDS[:2])):
        with pytest.raises(UserError, match=r"^Input 0: expected a string"):
            predictors["label"].explain(texts)


def _paragraphs(html):
    return [unescape(re.sub("<.*?>", "", x)) for x in re.findall("(?s)<p.*?>(.*?)</p>", html)]


def test_notebooks_show_the_texts_in_colors():
    texts = ("a <b>good</b> film", "slow")
    spans, scores = [(5, 9), (14, 18), (0, 4)], [1.0, -0.5, 0.0]
    explanation = Explanation("x<y", [*"abc"], [0, 0, 1], spans, scores, 0.5, 0.0, texts)
    html = explanation._repr_html_()
    shown = _paragraphs(html)
    assert shown == ["Blue pieces are for x<y, red ones against it.", *texts]
    colors = re.findall(r"rgb\((\d+) .*? / ([\d.]+)\)", html)
    assert colors == [("42", "0.70"), ("219", "0.35"), ("219", "0.00")]
    empty = Explanation("", [], [], [], [], 0.0, 0.0, ("",))
    assert _paragraphs(empty._repr_html_())[1:] == [""]
    # The pieces of a Hangul syllable, which a lower-casing tokenizer splits into letters.
    pieces = ["x", "##y", "##z", "a"], [0] * 4, [(0, 1), (0, 1), (0, 2), (3, 4)]
    korean = Explanation("", *pieces, [1.0] * 4, 4.0, 0.0, ("한국\na",))
    assert _paragraphs(korean._repr_html_())[1:] == ["한국\na"]
    assert str(korean) == "number: x +1.00, ##y +1.00, ##z +1.00, a +1.00"


def test_estimators_explain(predictors):
    classifier = TextClassifier.load(predictors["label"]._model)
    text = "the good film was <b>slow</b>"
    explanation = classifier.explain(text)
    assert explanation == predictors["label"].explain(text)
    assert explanation.texts == (text,)
    assert str(explanation).startswith(f"{explanation.label}: the ")
    with pytest.raises(UserError, match=r"^Input 0: expected a string"):
        classifier.explain([text, "bad"])
    regressor = TextRegressor.load(predictors["price"]._model)
    assert regressor.explain((text, "bad"), steps=2).texts == (text, "bad")
