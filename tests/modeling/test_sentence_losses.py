"""Losses, compared with hand-computed cases, and with NumPy on random batches."""

import math

import numpy as np
import pytest
import scipy.special

from bert_tf.modeling.losses import cosent, cosines, multiple_negatives

UNIT = np.eye(3, dtype=np.float32)


def cross_entropy(logits, target):
    return math.log(sum(map(math.exp, logits))) - logits[target]


def ids(*rows):
    return np.array(rows, np.int32)


def test_hard_negatives_are_those_of_all_rows():
    anchors = np.float32([[1, 0], [0, 1]])
    passages = np.float32([[[1, 0], [0.8, 0.6]], [[0, 1], [0.6, 0.8]]])
    losses = multiple_negatives(anchors, passages, ids([1, 2, 3], [4, 5, 6]), 1.0)
    expected = [cross_entropy([1, 0, 0.8, 0.6], 0), cross_entropy([0, 1, 0.6, 0.8], 1)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # The second row lacks a hard negative.
    losses = multiple_negatives(anchors, passages, ids([1, 2, 3], [4, 5, 0]), 1.0)
    expected = [cross_entropy([1, 0, 0.8], 0), cross_entropy([0, 1, 0.6], 1)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("text_ids", "allowed"),
    [
        # The positive of the first row is that of the second, too.
        (ids([1, 2], [3, 2], [4, 5]), [[0, 2], [1, 2], [0, 1, 2]]),
        # Both have the same anchor: each positive is also one of the other row.
        (ids([1, 2], [1, 3], [4, 5]), [[0, 2], [1, 2], [0, 1, 2]]),
        # The second positive is the text of the first anchor.
        (ids([1, 2], [3, 1], [4, 5]), [[0, 2], [0, 1, 2], [0, 1, 2]]),
    ],
)
def test_positives_are_not_negatives(text_ids, allowed):
    vectors = np.float32([[1, 0, 0], [0.8, 0.6, 0], [0.6, 0, 0.8]])
    passages = np.float32([[0, 0.6, 0.8], [1, 0, 0], [0.6, 0.8, 0]])
    losses = multiple_negatives(vectors, passages[:, None], text_ids, 2.0)
    logits = 2 * vectors @ passages.T
    expected = [
        cross_entropy([logits[row, column] for column in columns], columns.index(row))
        for row, columns in enumerate(allowed)
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_cosent():
    # Scores 0.2 < 0.5 = 0.5: of the pairs, only (0, 1) and (0, 2) are ordered.
    cosine, scores = np.float32([0.9, 0.4, 1.0]), np.float32([0.2, 0.5, 0.5])
    expected = math.log(1 + math.exp(2 * (0.9 - 0.4)) + math.exp(2 * (0.9 - 1.0)))
    np.testing.assert_allclose(cosent(cosine, scores, 2.0), [expected] * 3, rtol=1e-6)
    assert np.array_equal(cosent(cosine, np.float32([0.3] * 3), 2.0), [0, 0, 0])


def test_random_batches_against_numpy():
    rng = np.random.default_rng(0)
    anchors, passages = rng.normal(size=(6, 8)), rng.normal(size=(6, 3, 8))
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    candidates = unit(passages.transpose(1, 0, 2).reshape(18, 8))
    logits = 20 * unit(anchors) @ candidates.T
    forward = scipy.special.logsumexp(logits, axis=1) - logits.diagonal()
    backward = scipy.special.logsumexp(logits[:, :6], axis=0) - logits.diagonal()
    arguments = np.float32(anchors), np.float32(passages), np.arange(1, 25).reshape(6, 4)
    found = multiple_negatives(*arguments, 20.0)
    np.testing.assert_allclose(found, forward, rtol=1e-5)
    found = multiple_negatives(*arguments, 20.0, symmetric=True)
    np.testing.assert_allclose(found, (forward + backward) / 2, rtol=1e-5)
    cosine, scores = rng.uniform(-1, 1, 9), rng.uniform(0, 1, 9)
    terms = [0.0, *(20 * (x - y) for x, s in zip(cosine, scores, strict=True)
             for y, t in zip(cosine, scores, strict=True) if s < t)]  # fmt: skip
    found = cosent(np.float32(cosine), np.float32(scores), 20.0)
    np.testing.assert_allclose(found, [scipy.special.logsumexp(terms)] * 9, rtol=1e-5)


def test_values_of_sentence_transformers():
    """Those of its version 6.2 for the same vectors, with a scale of 20."""
    rng = np.random.default_rng(3)
    anchors = rng.normal(size=(16, 32)).astype(np.float32)
    passages = rng.normal(size=(16, 3, 32)).astype(np.float32)
    scores = rng.choice([0, 0.25, 0.5, 0.75, 1.0], 16).astype(np.float32)
    text_ids = np.arange(1, 65, dtype=np.int32).reshape(16, 4)
    found = np.mean(multiple_negatives(anchors, passages, text_ids, 20.0))
    assert found == pytest.approx(7.800376892089844, rel=1e-5)
    found = np.mean(multiple_negatives(anchors, passages, text_ids, 20.0, symmetric=True))
    assert found == pytest.approx(6.887435436248779, rel=1e-5)
    cosine = cosines(anchors, passages[:, 0])
    found = np.mean(cosent(cosine, scores, 20.0))
    assert found == pytest.approx(11.20329761505127, rel=1e-5)
    found = np.mean(np.square(cosine - scores))
    assert found == pytest.approx(0.3747076392173767, rel=1e-5)


def test_cosines():
    values = cosines(np.float32([[3, 4], [1, 0]]), np.float32([[6, 8], [-2, 0]]))
    np.testing.assert_allclose(values, [1, -1], rtol=1e-6)


def test_in_batch_negatives():
    # The cosines of the anchors with the positives are 1 and 0, and 0.6 and 0.8.
    anchors = np.float32([[1, 0], [0.6, 0.8]])
    passages = np.float32([[[2, 0]], [[0, 3]]])
    losses = multiple_negatives(anchors, passages, ids([1, 2], [3, 4]), 10.0)
    expected = [cross_entropy([10, 0], 0), cross_entropy([6, 8], 1)]
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)
    losses = multiple_negatives(anchors, passages, ids([1, 2], [3, 4]), 10.0, symmetric=True)
    # Of the positives with the anchors: 1 and 0.6, and 0 and 0.8.
    backward = [cross_entropy([10, 6], 0), cross_entropy([0, 8], 1)]
    np.testing.assert_allclose(losses, np.mean([expected, backward], axis=0), rtol=1e-4, atol=1e-6)
