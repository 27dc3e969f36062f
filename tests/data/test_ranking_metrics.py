"""Metrics, compared with hand-computed cases and scipy."""

import math

import numpy as np
import pytest
import scipy.stats

from bert_tf.data.ranking_metrics import correlations, rank, rank_candidates

QUERIES = np.float32([[1, 0], [0, 1]])


def retrieval_metrics(*args):
    return rank(*args).metrics()


def vectors(*scores):
    """Passages with these scores for the first query, and 0 for the second."""
    return np.float32([[score, 0] for score in scores])


def test_correlations_with_ties():
    rng = np.random.default_rng(0)
    predicted, scores = rng.integers(0, 5, 50).astype(float), rng.integers(0, 5, 50).astype(float)
    found = correlations(predicted, scores)
    expected = scipy.stats.spearmanr(predicted, scores).statistic
    assert found["eval_spearman"] == pytest.approx(expected, abs=1e-6)
    expected = scipy.stats.pearsonr(predicted, scores).statistic
    assert found["eval_pearson"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("value", "size"), [(1.0, 3), (0.1, 100), (0.3, 77), (1e9 + 0.1, 1379)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_correlation_with_a_constant(value, size, dtype):
    rng = np.random.default_rng(0)
    constant, other = np.full(size + 1, value, dtype), rng.random(size + 1)
    constant[0] = 5
    weights = rng.integers(0, 3, size + 1) * (constant == constant[1]).astype(float)
    pair = constant[1:], other[1:]
    for arrays in (pair, pair[::-1], (constant, other, weights)):
        assert np.isnan([*correlations(*arrays).values()]).all()


def test_correlation_of_tiny_numbers():
    a, b = np.arange(5.0), np.array([1.0, 0, 3, 2, 5])
    assert correlations(1e-120 * a, 1e-120 * b) == pytest.approx(correlations(a, b))


def test_retrieval():
    # Relevant passages at ranks 2 (relevance 1) and 4 (relevance 2); two at rank 12 and further.
    passages = vectors(*range(20, 0, -1))
    found = retrieval_metrics(QUERIES, passages, [(0, 1, 1.0), (0, 3, 2.0), (0, 12, 1.0)], {})
    assert found["eval_mrr@10"] == pytest.approx(1 / 2)
    assert found["eval_map"] == pytest.approx((1 / 2 + 2 / 4 + 3 / 13) / 3)
    gain = 1 / math.log2(3) + 2 / math.log2(5)
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found["eval_ndcg@10"] == pytest.approx(gain / ideal)
    assert found["eval_recall@1"] == 0
    assert found["eval_recall@10"] == pytest.approx(2 / 3)
    assert found["eval_recall@100"] == 1
    assert "eval_triplet_accuracy" not in found


PASSAGES = np.float32([[1, 0], [0, 1], [0.5, 0.9]])


@pytest.mark.parametrize(
    ("passages", "judgments", "ignored", "expected"),
    [
        # The mean over queries with a relevant passage.
        (PASSAGES, [(0, 0, 1.0), (1, 2, 1.0)], {}, {"mrr@10": (1 + 1 / 2) / 2}),
        (PASSAGES, [(0, 0, 1.0), (1, 2, 0.0)], {}, {"mrr@10": 1}),
        # A query does not find itself.
        (vectors(3, 2, 1), [(0, 1, 1.0)], {0: 0}, {"mrr@10": 1}),
        (vectors(3, 2, 1), [(0, 1, 1.0)], {}, {"mrr@10": 0.5}),
        (
            vectors(*range(20, 0, -1)),
            [(0, 10, 1.0)],
            {},
            {"mrr@10": 0, "ndcg@10": 0, "map": 1 / 11},
        ),
        # Ties are in the order of passages.
        (vectors(1, 1, 1), [(0, 1, 1.0)], {}, {"mrr@10": 1 / 2}),
        # Relevant: score 3 and 1; not relevant: 2.
        (vectors(3, 2, 1), [(0, 0, 1.0), (0, 2, 1.0), (0, 1, 0.0)], {}, {"triplet_accuracy": 0.5}),
    ],
)
def test_metrics_computed_by_hand(passages, judgments, ignored, expected):
    found = retrieval_metrics(QUERIES, passages, judgments, ignored)
    assert {name: found[f"eval_{name}"] for name in expected} == pytest.approx(expected)


def test_values_of_each_query(monkeypatch):
    monkeypatch.setattr("bert_tf.data.ranking_metrics._MAX_SCORES", 3)  # one query at a time
    found = rank(QUERIES, PASSAGES, [(1, 2, 1.0), (0, 0, 1.0), (0, 2, 0.0)], {})
    assert found.queries.tolist() == [1, 0]
    assert found.best.tolist() == [1, 0]
    assert found.values["mrr@10"].tolist() == [0.5, 1]
    assert np.array_equal(found.values["triplet_accuracy"], [np.nan, 1], equal_nan=True)


def metrics_by_counting(scores, gains):
    """The metrics of a query, by their definitions: ties in order, and missed passages last."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    ranks = [1.0 + order.index(i) if i < len(scores) else np.inf for i in range(len(gains))]
    found = sorted((rank, gain) for rank, gain in zip(ranks, gains, strict=True) if gain > 0)
    best = sorted(gains, reverse=True)
    return {
        "mrr@10": 1 / found[0][0] if found[0][0] <= 10 else 0,
        "ndcg@10": sum(gain / math.log2(1 + rank) for rank, gain in found if rank <= 10)
        / sum(gain / math.log2(2 + i) for i, gain in enumerate(best[:10])),
        "map": np.mean([(i + 1) / rank for i, (rank, _) in enumerate(found)]),
        **{f"recall@{k}": np.mean([rank <= k for rank, _ in found]) for k in (1, 10, 100)},
    }


def test_ties_among_many_relevant_passages():
    rng = np.random.default_rng(0)
    for _ in range(100):
        scores = [rng.integers(0, 4, rng.integers(1, 30)).astype(np.float32)]
        gains = [np.append(rng.integers(0, 3, len(scores[0]) + rng.integers(3)), 1.0)]
        found = rank_candidates(scores, gains).values
        for name, expected in metrics_by_counting(scores[0], gains[0]).items():
            assert found[name][0] == pytest.approx(expected), name
        known = gains[0][: len(scores[0])]
        judgments = [(0, index, gain) for index, gain in enumerate(known)]
        if known.any():
            pairs = [(x, y) for x in scores[0][known > 0] for y in scores[0][known == 0]]
            ranking = rank(np.ones((1, 1), np.float32), scores[0][:, None], judgments, {})
            closer = ranking.values.get("triplet_accuracy", [np.nan])[0]
            expected = np.mean([x > y for x, y in pairs]) if pairs else np.nan
            assert closer == pytest.approx(expected, nan_ok=True)
