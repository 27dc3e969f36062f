"""A reranked run, as trec_eval reads and evaluates it (`pip install pytrec_eval-terrier`)."""

import random

import numpy as np
import pytest

from bert_tf.data.ranking_metrics import rank_candidates
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import RankingOptions
from bert_tf.tables.relevance import Candidate
from bert_tf.tasks.ranking.task import Ranking, Relevance

pytestmark = pytest.mark.slow

# Ours -> trec_eval's measure and its name in the results.
MEASURES = {
    "mrr@10": ("recip_rank", "recip_rank"),  # there are only ten candidates
    "ndcg@10": ("ndcg_cut.10", "ndcg_cut_10"),
    "map": ("map", "map"),
    "recall@1": ("recall.1", "recall_1"),
    "recall@10": ("recall.10", "recall_10"),
    "recall@100": ("recall.100", "recall_100"),
}


def test_metrics_of_a_run(tiny, tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = random.Random(0)
    qrels = {
        f"q{n}": {f"d{rng.randrange(30)}": rng.randint(0, 2) for _ in range(8)} for n in range(20)
    }
    qrels = {query: {**known, "missing": 1} for query, known in qrels.items()}
    candidates = [
        Candidate("text", "text", query, f"d{document}")
        for query in qrels
        for document in rng.sample(range(30), 10)
    ]
    predictions = [Relevance(rng.gauss(0, 1), 0.5) for _ in candidates]
    task = Ranking(*read_model_files(RankingOptions(**tiny.flags)))
    (path,) = task.write("predict", candidates, predictions, str(tmp_path)).paths
    with open(path) as file:
        run = pytrec_eval.parse_run(file)
    measures = {measure for measure, _ in MEASURES.values()}
    expected = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    scores = np.split(np.array([x.score for x in predictions], np.float32), len(qrels))
    gains = []
    for start, known in zip(range(0, len(candidates), 10), map(dict, qrels.values()), strict=True):
        own = [known.pop(x.passage_id, 0) for x in candidates[start : start + 10]]
        gains.append(np.float32([*own, *known.values()]))
    values = rank_candidates(scores, gains).values
    for name, (_, theirs) in MEASURES.items():
        found = [expected[query][theirs] for query in qrels]
        np.testing.assert_allclose(values[name], found, atol=1e-6, err_msg=name)
