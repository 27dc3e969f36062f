"""SentenceEncoder: vectors as those of extract_features.py, training, and scikit-learn's tools."""

import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils.validation import check_is_fitted

from bert_tf import SentenceEncoder, run
from bert_tf.base.errors import UserError
from bert_tf.options import EmbeddingsOptions, ExtractionOptions
from tests.api.test_training import weights_in
from tests.tasks.feature_extraction.test_declared_pooling import NORMALIZE, declare

TEXTS = ["the good film", "a slow story", "the plot was fast", "not a good story"]
ANCHORS = ["good", "slow", "fast", "bad"] * 3
POSITIVES = ["the good film", "a slow story", "it was fast", "the bad plot"] * 3
FLAGS = {"max_seq_length": 16, "train_batch_size": 4, "learning_rate": 1e-2}
FLAGS["num_train_epochs"] = 2.0


def extracted(folder, tmp_path, **flags):
    """Returns the vectors that extract_features.py writes."""
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    output = str(tmp_path / "out.npz")
    files = {"input_file": str(tmp_path / "in.txt"), "output_file": output}
    run(ExtractionOptions(init_checkpoint=str(folder), **files, **flags))
    return np.load(output)["features"][:, 0]


@pytest.fixture(scope="module")
def trained(tiny):
    return SentenceEncoder(str(tiny.folder), **FLAGS).fit(ANCHORS, POSITIVES)


def test_untrained_vectors_are_those_of_the_script(tiny, tmp_path):
    encoder = SentenceEncoder(tiny.folder, max_seq_length=16, pooling="max")
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    flags = {"layers": "-1", "max_seq_length": 16}
    np.testing.assert_array_equal(vectors, extracted(tiny.folder, tmp_path, pooling="max", **flags))
    np.testing.assert_array_equal(encoder.encode(pd.Series(TEXTS)), vectors)
    encoder.set_params(normalize=True, pooling="cls")
    other = extracted(tiny.folder, tmp_path, pooling="cls", **flags)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), other, atol=1e-6)
    assert not hasattr(encoder, "history")
    with pytest.raises(NotFittedError):
        encoder.save(tmp_path / "model")


def test_folders_of_sentence_transformers_declare_their_vectors(tiny, tmp_path, run_log):
    shutil.copytree(tiny.folder, tmp_path / "model")
    declare(tmp_path / "model", {"pooling_mode": "cls"}, [NORMALIZE], max_seq_length=6)
    vectors = clone(SentenceEncoder(tmp_path / "model")).encode(TEXTS)
    np.testing.assert_array_equal(vectors, extracted(tmp_path / "model", tmp_path))
    # Another pooling is not ignored.
    flags = {"pooling": "max", "layers": "-1", "max_seq_length": 6}
    other = SentenceEncoder(tmp_path / "model", pooling="max", max_seq_length=6).encode(TEXTS)
    np.testing.assert_array_equal(other, extracted(tmp_path / "model", tmp_path, **flags))
    # Nor is the value that is the default otherwise.
    run_log.clear()
    other = clone(SentenceEncoder(tmp_path / "model", pooling="mean", max_seq_length=6))
    flags["pooling"] = "mean"
    vectors = other.encode(TEXTS)
    assert "declares pooling=cls, normalized, not --pooling=mean" in run_log.text
    np.testing.assert_array_equal(vectors, extracted(tmp_path / "model", tmp_path, **flags))


def test_flags_of_load_count(tiny, tmp_path, run_log):
    """As `SentenceEncoder(folder, pooling=...)`, also if the encoder was trained otherwise."""
    trained = SentenceEncoder(str(tiny.folder), normalize=True, **FLAGS).fit(ANCHORS, POSITIVES)
    trained.save(tmp_path / "model")
    vectors = trained.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for flags in ({}, {"normalize": True}):
        other = SentenceEncoder.load(tmp_path / "model", **flags)
        np.testing.assert_array_equal(other.encode(TEXTS), vectors)
        assert "declares pooling=mean, normalized, not" not in run_log.text
    for flags in ({"pooling": "cls"}, {"pooling": "mean"}, {"pooling": "max", "normalize": True}):
        loaded = SentenceEncoder.load(tmp_path / "model", **flags)
        expected = SentenceEncoder(tmp_path / "model", max_seq_length=16, **flags).encode(TEXTS)
        np.testing.assert_array_equal(loaded.encode(TEXTS), expected)
        assert abs(expected - vectors).max() > 0.01
        assert f"pooling=mean, normalized, not --pooling={flags['pooling']}" in run_log.text
    for create in (SentenceEncoder.load, lambda *args, **flags: SentenceEncoder(*args, **flags)):
        with pytest.raises(UserError, match="declares vectors of length 1"):
            create(tmp_path / "model", normalize=False).encode(TEXTS)
    loaded.fit(ANCHORS, POSITIVES, pooling="cls", normalize=False, num_train_epochs=1.0)
    run_log.clear()
    assert loaded.encode(TEXTS).shape == vectors.shape
    assert "declares pooling=mean, normalized, not" not in run_log.text


def test_training_is_that_of_the_script(tiny, tmp_path, trained):
    rows = "".join(f"{a}\t{b}\n" for a, b in zip(ANCHORS, POSITIVES, strict=True))
    (tmp_path / "train.tsv").write_text(rows)
    columns = {"anchor_column": "1", "positive_column": "2", "data_dir": str(tmp_path)}
    run(
        EmbeddingsOptions(
            init_checkpoint=str(tiny.folder),
            output_dir=str(tmp_path / "run"),
            do_train=True,
            **columns,
            **FLAGS,
        )
    )
    trained.save(tmp_path / "saved")
    trained.save(tmp_path / "saved", overwrite=True)
    weights = weights_in(tmp_path / "saved")
    for name, value in weights_in(tmp_path / "run").items():
        assert name not in weights or (weights[name] == value).all()
    assert "bert/embeddings/word_embeddings" in weights
    vectors = trained.encode(TEXTS)
    for folder in ("run", "saved"):
        np.testing.assert_array_equal(vectors, extracted(tmp_path / folder, tmp_path))
    for other in (
        SentenceEncoder.load(tmp_path / "saved"),
        SentenceEncoder(tmp_path / "run"),
        pickle.loads(pickle.dumps(trained)),
    ):
        np.testing.assert_array_equal(other.encode(TEXTS), vectors)
    assert trained.history["loss"].shape == (6,)


def test_similarities(trained):
    vectors = trained.encode(TEXTS)
    lengths = np.linalg.norm(vectors, axis=1)
    expected = vectors @ vectors[:2].T / lengths[:, None] / lengths[:2]
    for texts in (TEXTS, vectors):
        similarity = trained.similarity(texts, TEXTS[:2])
        assert similarity.shape == (4, 2)
        np.testing.assert_allclose(similarity, expected, atol=1e-6)
    for other in (vectors[:, :5], vectors[0]):
        with pytest.raises(UserError, match=r"expected vectors \[M, D\] and \[N, D\]. Received: "):
            trained.similarity(vectors, other)


def test_negatives_of_all_some_or_no_rows(tiny, caplog):
    encoder = SentenceEncoder(str(tiny.folder), **FLAGS)
    anchors, positives, negatives = ["good", "bad"] * 4, ["film", "plot"] * 4, ["a", "the"] * 4
    losses = []
    for count in (0, 4, 8):
        rows = [
            [positive, negative] if index < count else positive
            for index, (positive, negative) in enumerate(zip(positives, negatives, strict=True))
        ]
        for order in (1, -1):
            encoder.fit(anchors[::order], rows[::order])
            losses.append(encoder.history["loss"][0])
    assert len({*losses[::2]}) == 3
    assert "negatives" not in caplog.text


def test_scores_and_negatives(tiny):
    encoder = SentenceEncoder(str(tiny.folder), **FLAGS)
    pairs, scores = [("good film", "good plot"), ("good", "bad")] * 4, [1, 0.2] * 4
    with pytest.raises(UserError, match="would ignore the scores: pass loss=cosent"):
        encoder.fit(pairs, scores)
    encoder.fit(pairs, scores, validation=(pairs, scores), loss="cosent")
    assert encoder.evaluations["spearman"].shape == (1,)
    positives = [("the good film", "a bad film")] * len(ANCHORS)
    encoder.fit(ANCHORS, positives, validation=(ANCHORS, positives))
    assert "triplet_accuracy" in encoder.evaluations


@pytest.mark.parametrize(
    ("anchors", "positives", "message"),
    [
        (["a"], [1], "text 0: expected a text and texts.* Received: 'a', 1"),
        ([("a", "b")], ["c"], r"text 0: .* Received: \('a', 'b'\), 'c'"),
        ([("a", "b"), ("a", "b", "c")], [0.5, 1], "text 1: expected a text and texts"),
        (["a", ("b", "c")], ["b", 0.5], "text 1: expected a text and texts"),
        (["a", "b"], [[], "c"], "text 0: expected a text and texts"),
        (["a"], [""], "text 0: the positive is empty"),
    ],
)
def test_invalid_training_data(tiny, anchors, positives, message):
    with pytest.raises(UserError, match=message):
        SentenceEncoder(str(tiny.folder), **FLAGS).fit(anchors, positives)


def test_labels_are_no_texts_that_match(tiny, run_log):
    texts, labels = [f"good {n}" for n in range(100)], ["ham", "spam"] * 50
    SentenceEncoder(str(tiny.folder), **FLAGS).fit(texts, labels, num_train_epochs=0.1)
    assert "texts: only 2 of 100 positives are distinct" in run_log.text


def test_warnings_about_texts(tiny, run_log):
    encoder = SentenceEncoder(tiny.folder, max_seq_length=8, query_prefix="slow: ")
    encoder.encode(["good " * 20, "good"])
    assert "1 of 2 texts is longer than max_seq_length=8 and was truncated" in run_log.text
    assert "encode adds no prefix: write 'slow: ' before texts" in run_log.text
    run_log.clear()
    encoder.encode(["slow: good"])
    assert not run_log.text


def test_rankers_are_no_encoders(tiny, tmp_path):
    shutil.copytree(tiny.folder, tmp_path / "model")
    (tmp_path / "model" / "run.json").write_text('{"script": "run_ranking"}')
    with pytest.raises(UserError, match="no vectors of texts: run_ranking trained it"):
        SentenceEncoder(tmp_path / "model").encode(TEXTS)


def test_invalid_texts(tiny):
    encoder = SentenceEncoder(str(tiny.folder), max_seq_length=16)
    assert encoder.encode([]).shape == (0, 16)
    with pytest.raises(UserError, match="expected texts as a list"):
        encoder.encode("a text")
    with pytest.raises(UserError, match="Pass the folder of a model as init_checkpoint"):
        SentenceEncoder().encode(["a text"])


def test_pipeline(tiny):
    encoder = SentenceEncoder(str(tiny.folder), max_seq_length=16)
    labels = [text.count("good") for text in TEXTS]
    pipeline = clone(make_pipeline(encoder, LogisticRegression(C=1000)))
    pipeline.fit(TEXTS, labels)
    assert pipeline.predict(TEXTS).tolist() == labels
    # The labels have not trained the encoder.
    assert not hasattr(pipeline[0], "history")
    np.testing.assert_array_equal(pipeline[0].transform(TEXTS), encoder.encode(TEXTS))
    texts = pd.Series(TEXTS, index=range(5, 5 + len(TEXTS)))
    frame = clone(encoder).set_output(transform="pandas").fit_transform(texts)
    assert frame.index.equals(texts.index)
    assert [*frame.columns[:2]] == ["sentenceencoder0", "sentenceencoder1"]
    np.testing.assert_array_equal(frame, encoder.encode(TEXTS))
    assert [*encoder.get_feature_names_out()] == [*frame.columns]


def test_last_step_of_a_pipeline(tiny):
    """`fit` without labels does not train, and the pipeline is fitted."""
    encoder = SentenceEncoder(str(tiny.folder), max_seq_length=16)
    expected = encoder.encode(TEXTS)
    check_is_fitted(encoder)
    for pipeline in (make_pipeline(clone(encoder)), make_union(make_pipeline(clone(encoder)))):
        np.testing.assert_array_equal(pipeline.fit(TEXTS).transform(TEXTS), expected)
        np.testing.assert_array_equal(pipeline.fit_transform(TEXTS), expected)
    labels = [text.count("good") for text in TEXTS]
    columns = ColumnTransformer([("text", make_pipeline(clone(encoder)), "text")])
    frame = pd.DataFrame({"text": TEXTS})
    nested = make_pipeline(columns, LogisticRegression(C=1000)).fit(frame, labels)
    assert nested.predict(frame).tolist() == labels
