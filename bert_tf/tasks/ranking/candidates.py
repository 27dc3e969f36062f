"""Chooses the passages that a cross-encoder learns from, and those that it ranks."""

import bisect
import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.data.matches import Match, Matches
from bert_tf.tables.relevance import Candidate, read_candidates

# Query id -> its candidates, best first.
Run = Mapping[str, Sequence[Candidate]]


def read_run(path: str, top_k: int, *texts: Any) -> Run:
    """Returns the first `top_k` candidates of each query; `texts` as for `read_candidates`."""
    found = read_candidates(path, *texts)
    most = max(map(len, found.values()))
    used = f"{'all' if most <= top_k else f'the first {top_k}'} of up to {most:,} candidates"
    note(f"uses {used} of a query (number of queries: {len(found)})", at=path)
    return {query: candidates[:top_k] for query, candidates in found.items()}


class Ranked(list[Candidate]):
    """The candidates of several queries, and what is known about them.

    Attributes:
        judged: each query, and one of the passages that are relevant to it.
        gains: relevance of each query's candidates and further passages, see `rank_candidates`.
    """

    def __init__(
        self,
        judged: Sequence[tuple[str, str]],
        candidates: Sequence[Sequence[Candidate]],
        gains: Sequence[np.ndarray],
    ) -> None:
        super().__init__(itertools.chain.from_iterable(candidates))
        self._bounds = np.cumsum([0, *map(len, candidates)])
        self.judged, self.gains, self.num_queries = judged, gains, len(judged)

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Splits the values of all candidates into those of each query."""
        return np.split(values, self._bounds[1:-1])

    def passage(self, query: int, index: int) -> str:
        """Returns a candidate of a query; "" for the index -1: it has none."""
        return self[self._bounds[query] + index].passage if index >= 0 else ""


class Choices:
    """Chooses passages for the queries of a split, always the same ones.

    Args:
        data: the matches.
        run: candidates that a search found; empty if there was none.
    """

    def __init__(self, data: Matches, run: Run) -> None:
        self.data = data
        self.run = {_key(found[0].query): found for found in run.values()}
        # Query -> relevant passage -> relevance; and query -> its hard negatives.
        self.relevant: dict[str, dict[str, float]] = defaultdict(dict)
        self.negatives: dict[str, list[str]] = defaultdict(list)
        for anchor, positive, negatives, score in data.matches:
            if score > 0:
                known = self.relevant[anchor]
                known[positive] = max(score, known.get(positive, 0.0))
            self.negatives[anchor] += [positive] * (score == 0) + [*negatives]
        self.passages = data.passages
        # Query -> for each of its relevant passages, how many others come before it.
        self._gaps: dict[str, list[int]] = {}
        indexes = {text: index for index, text in enumerate(self.passages)}
        for query, known in self.relevant.items():
            own = sorted(indexes[text] for text in known)
            self._gaps[query] = [index - count for count, index in enumerate(own)]

    def _draw(self, query: str, count: int, used: Sequence[str], seed: str) -> list[str]:
        """Draws random passages that are neither used nor relevant to the query."""
        gaps, excluded = self._gaps.get(query, []), {query, *used}
        others = range(len(self.passages) - len(gaps))
        drawn = random.Random(seed).sample(others, min(len(others), count + len(excluded)))
        texts = (self.passages[index + bisect.bisect_right(gaps, index)] for index in drawn)
        return [text for text in texts if text not in excluded][:count]

    def training_rows(self, count: int) -> list[Match]:
        """Returns the relevant pairs, each with `count` negatives.

        They are the hard negatives of the row, then random candidates of the run, then random
        passages. The relevance is divided by the highest one, if that is above 1.

        Raises:
            UserError: there are fewer passages, or the run has none of the queries.
        """
        rows: list[Match] = []
        numbers = np.zeros(3, int)
        highest = max(1.0, *(match.score for match in self.data.matches))
        unjudged: dict[str, list[Candidate]] = {}
        for anchor in self.negatives:
            known = {*map(_key, (anchor, *self.relevant[anchor]))}
            run = self.run.get(_key(anchor), ())
            unjudged[anchor] = [x for x in run if _key(x.passage) not in known]
        for anchor, positive, negatives, score in self.data.matches:
            seed = f"{anchor}\n{positive}"
            known = {*map(_key, negatives)}
            found = [x.passage for x in unjudged[anchor] if _key(x.passage) not in known]
            hard = [*dict.fromkeys(negatives)][:count]
            found = random.Random(seed).sample(found, min(len(found), count - len(hard)))
            drawn = self._draw(anchor, count - len(hard + found), hard + found, seed)
            rows.append(Match(anchor, positive, (*hard, *found, *drawn), score / highest))
            numbers += len(hard), len(found), len(drawn)
        if self.run and not any(_key(match.anchor) in self.run for match in rows):
            raise UserError("the run has no candidates for these queries", at=self.data.path)
        if any(len(row.negatives) < count for row in rows):
            number = counted(len(self.passages), "passage")
            problem = f"--num_negatives={count} needs more than {number}"
            raise UserError(problem, at=self.data.path)
        hard, of_run, drawn = numbers / len(rows)
        kinds = f"{hard:.3g} hard, {of_run:.3g} of the run, {drawn:.3g} random"
        note(f"negatives of a row, on average: {kinds}", at=self.data.path)
        return rows

    def ranked(self, top_k: int) -> Ranked:
        """Returns the passages to rank for each query that has a relevant one.

        They are the candidates of the run, except for the query itself. Without a run, they are
        the relevant passages and hard negatives or, for queries that have none, random passages:
        `top_k` in all, in random order.

        Raises:
            UserError: no candidate of the run is relevant, and `top_k` left out none.
        """
        candidates: list[Sequence[Candidate]] = []
        gains: list[np.ndarray] = []
        judged = [(query, known) for query, known in self.relevant.items() if known]
        is_any_relevant, num_empty = False, 0
        for query, relevant in judged:
            own, missed = _key(query), {_key(text): score for text, score in relevant.items()}
            found = [x for x in self.run.get(own, []) if _key(x.passage) != own or own in missed]
            if not self.run:
                texts = [*relevant, *self.negatives[query]]
                count = 0 if self.negatives[query] else max(1, top_k - len(relevant))
                texts += self._draw(query, count, texts, query)
                random.Random(query).shuffle(texts)  # ties must not favor the relevant ones
                found = [Candidate(query, text) for text in dict.fromkeys(texts)]
            known = [missed.pop(_key(candidate.passage), 0.0) for candidate in found]
            is_any_relevant, num_empty = is_any_relevant or any(known), num_empty + (not known)
            candidates.append(found)
            gains.append(np.array([*known, *missed.values()], np.float32))
        ranked = Ranked([(query, next(iter(known))) for query, known in judged], candidates, gains)
        if not is_any_relevant:
            problem = f"no relevant passage is among the {top_k} candidates of a query (--top_k)"
            if all(len(found) < top_k for found in self.run.values()):
                raise UserError(problem, at=self.data.path)
            warn(problem, at=self.data.path)
        if not self.run and all(x.all() for x in gains):
            warn("only relevant passages: all metrics are 1", at=self.data.path)
        if num_empty:
            empty = f"{num_empty} of {len(judged)}"
            warn(f"queries without candidates, which count as 0: {empty}", at=self.data.path)
        number = f"{counted(len(ranked), 'pair')} (number of queries: {len(judged)})"
        note(f"ranks {number}", at=self.data.path)
        return ranked


def _key(text: str) -> str:
    """Returns what texts are compared by: their words."""
    return " ".join(text.split())
