"""Metrics of similarities: correlation with scores, and retrieval.

Shapes: Q queries, P passages, D size of a vector.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.base.errors import UserError

# Query, passage, and the score of the pair or the relevance of the passage; 0: not relevant.
Judgment = tuple[int, int, float]
# Names of the metrics of `correlations`, and of `rank` and `rank_candidates`.
CORRELATIONS = ("spearman", "pearson")
RANKING = ("mrr@10", "ndcg@10", "map", "recall@1", "recall@10", "recall@100")
# Number of similarities that are computed at once.
_MAX_SCORES = 1 << 26


def correlations(
    predicted: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, np.float32]:
    """Computes Spearman's and Pearson's correlation of two arrays [N]; NaN if one is constant.

    Pairs count `weights` [N] times, by default once. Raises a UserError if a number is not finite.
    """
    _require_finite(predicted, scores)
    weights = np.ones(len(scores)) if weights is None else weights
    ranks = _ranks(predicted, weights), _ranks(scores, weights)
    found = {}
    for name, pair in zip(CORRELATIONS, (ranks, (predicted, scores)), strict=True):
        # Subtracting a value first makes a constant exactly 0, in spite of rounding.
        x, y = (values.astype(np.float64) - values[weights.argmax()] for values in pair)
        x, y = (values - np.average(values, weights=weights) for values in (x, y))
        xx, yy, xy = (np.dot(weights, product) for product in (x * x, y * y, x * y))
        size = np.sqrt(xx) * np.sqrt(yy)  # the product of small numbers might be 0
        found[f"eval_{name}"] = np.float32(xy / size if size > 0 else np.nan)
    return found


def _require_finite(*arrays: np.ndarray) -> None:
    # Comparisons with NaN are false, so that it would seem to rank first.
    if not all(np.isfinite(array).all() for array in arrays):
        raise UserError("Metrics need scores without NaN and infinity")


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the mean rank of each value among pairs that are repeated `weights` times."""
    _, groups = np.unique(values, return_inverse=True)
    counts = np.bincount(groups, weights)
    return (np.cumsum(counts) - counts / 2)[groups]


class Ranking(NamedTuple):
    """How well passages were ranked for each of N queries that have a relevant passage."""

    queries: np.ndarray  # indexes of these queries, int [N]
    best: np.ndarray  # index of the first passage of each ranking, int [N]; -1: none
    # Name of a metric -> its value for each query, float [N]; `rank`: that of the first relevant
    # passage, from 1, or infinity
    values: dict[str, np.ndarray]

    def metrics(self) -> dict[str, np.float32]:
        """Returns the means over queries; names begin with `eval_`."""
        values = (item for item in self.values.items() if item[0] != "rank")
        return {f"eval_{name}": np.float32(np.nanmean(x)) for name, x in values}

    def worst_first(self) -> "Ranking":
        """Returns the ranking with the queries in the order of their average precision."""
        order = np.argsort(self.values["map"], kind="stable")
        values = {name: x[order] for name, x in self.values.items()}
        return Ranking(self.queries[order], self.best[order], values)


def rank(
    queries: np.ndarray,
    passages: np.ndarray,
    judgments: Sequence[Judgment],
    ignored: Mapping[int, int],
) -> Ranking:
    """Ranks all passages for each query by their dot products.

    The cutoffs are those of trec_eval and BEIR: MRR and nDCG of the first 10, recall in the first
    1, 10 and 100, and the mean average precision (MAP) of all. Ties count in the order of passages.

    Args:
        queries: vectors [Q, D].
        passages: vectors [P, D].
        judgments: the relevant passages; queries without any do not count.
        ignored: query -> a passage that it does not find: the query itself.

    Returns:
        Metrics by query; also `triplet_accuracy` if there are passages with relevance 0: the
        fraction of (query, relevant, not relevant) in which the relevant passage is more similar,
        NaN for a query without them.
    """
    judged: dict[int, dict[int, float]] = defaultdict(dict)
    for query, passage, relevance in judgments:
        judged[query][passage] = max(relevance, judged[query].get(passage, 0))
    answerable = [query for query, found in judged.items() if max(found.values()) > 0]
    best: list[int] = []
    values: dict[str, list[float]] = defaultdict(list)
    size = max(1, _MAX_SCORES // len(passages))
    for block in (answerable[start : start + size] for start in range(0, len(answerable), size)):
        similarities = queries[block] @ passages.T
        _require_finite(similarities)
        for query, scores in zip(block, similarities, strict=True):
            known, gains = map(np.array, zip(*judged[query].items(), strict=True))
            relevant, irrelevant = known[gains > 0], known[gains == 0]
            num_closer = np.searchsorted(np.sort(scores[irrelevant]), scores[relevant]).sum()
            num_pairs = len(relevant) * len(irrelevant)
            values["triplet_accuracy"].append(num_closer / num_pairs if num_pairs else np.nan)
            if query in ignored and ignored[query] not in relevant:
                scores[ignored[query]] = -np.inf
            best.append(int(scores.argmax()))
            for name, value in _query_metrics(scores, relevant, gains[gains > 0]).items():
                values[name].append(value)
    arrays = {name: np.array(found) for name, found in values.items()}
    arrays = {name: found for name, found in arrays.items() if not np.isnan(found).all()}
    return Ranking(np.array(answerable), np.array(best), arrays)


def rank_candidates(scores: Sequence[np.ndarray], gains: Sequence[np.ndarray]) -> Ranking:
    """Ranks the candidates of each query by their scores, with the metrics of `rank`.

    Args:
        scores: of the C candidates of each query, float [C]. Ties count in this order.
        gains: relevance of each query's candidates, and then of the M relevant passages that are
            none: these are not found, but missed. Float [C + M], of which one is above 0.
    """
    values: dict[str, list[float]] = defaultdict(list)
    _require_finite(*scores)
    for own, known in zip(scores, gains, strict=True):
        relevant = np.flatnonzero(known > 0)
        found = relevant[relevant < len(own)]
        for name, value in _query_metrics(own, found, known[relevant]).items():
            values[name].append(value)
    best = np.array([int(own.argmax()) if len(own) else -1 for own in scores])
    arrays = {name: np.array(found) for name, found in values.items()}
    return Ranking(np.arange(len(scores)), best, arrays)


def _query_metrics(scores: np.ndarray, relevant: np.ndarray, gains: np.ndarray) -> dict[str, float]:
    """Returns the metrics of a query, some of whose relevant passages may have no score.

    `gains` are those of `relevant`, the indexes of passages with a score, and then of the others.
    """
    before = ((scores > scores[i], scores[:i] == scores[i]) for i in relevant)
    ranks = np.full(len(gains), np.inf)
    ranks[: len(relevant)] = [1 + sum(map(np.count_nonzero, pair)) for pair in before]
    order = np.argsort(ranks)
    ranks, gains = ranks[order], gains[order]
    ideal = np.sort(gains)[::-1][:10] / np.log2(np.arange(2, 2 + min(10, len(gains))))
    return {
        "rank": ranks[0],
        "mrr@10": 1 / ranks[0] if ranks[0] <= 10 else 0.0,
        "ndcg@10": (gains / np.log2(1 + ranks))[ranks <= 10].sum() / ideal.sum(),
        "map": float(np.mean(np.arange(1, 1 + len(ranks)) / ranks)),
        **{f"recall@{k}": float(np.mean(ranks <= k)) for k in (1, 10, 100)},
    }
