"""Cross-encoders: a model reads a query and a passage together, and says how relevant it is.

As in Nogueira and Cho 2019, "Passage Re-ranking with BERT". Shapes: B rows in a batch, E examples,
P passages of a row of training, the relevant one first, S max_seq_length.
"""

import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import note, warn
from bert_tf.config import BertConfig
from bert_tf.data import array_ops, ranking_metrics
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.matches import Match, read_matches
from bert_tf.data.packing import CUT_TOKENS, convert_examples
from bert_tf.data.ranking_metrics import RANKING, rank_candidates
from bert_tf.data.split_files import find_files, no_file
from bert_tf.data.texts import Text
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.task import Metric, Schema, Task, Traits, Written
from bert_tf.options.declare import value_for
from bert_tf.report.evaluation import EvaluationReport, ranking_report
from bert_tf.tables.relevance import Candidate
from bert_tf.tasks.ranking.candidates import Choices, Ranked, read_run
from bert_tf.tasks.ranking.options import POINTWISE, RankingOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

RERANKED = "reranked.trec"


class Relevance(NamedTuple):
    """How relevant a passage is: a score (the logit), and its sigmoid."""

    score: float
    probability: float


class Ranking(Task):
    """Trains and applies a cross-encoder."""

    options: RankingOptions
    schema = Schema(text_pairs=True)
    traits = Traits(tuple(map(Metric, RANKING)), unit="pair")

    def __init__(
        self, options: RankingOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)
        # (split) -> its matches; a file is read only once: it may be a pipe.
        self._data = functools.cache(lambda s: read_matches(options, s, options.is_scored(s)))
        self.read = functools.cache(self.read)

    def read(self, split: str) -> Sequence[Any]:
        """Reads the rows to train on, or the candidates to rank."""
        options = self.options
        if split == "predict":
            paths = find_files(options, [split])
            if not paths:
                raise no_file(split, options.data_dir)
            folder = os.path.dirname(paths[split])
            folders = [options.data_dir or folder, folder]
            run = read_run(paths[split], options.top_k, {}, {}, folders)
            return [*itertools.chain.from_iterable(run.values())]
        data = self._data(split)
        if options.is_scored(split):
            negatives = [Match(m.anchor, x, (), 0.0) for m in data.matches for x in m.negatives]
            return [m._replace(negatives=()) for m in data.matches] + negatives
        path = value_for(options.run_file or "", split)
        texts = data.queries, data.documents
        choices = Choices(data, read_run(path, options.top_k, *texts) if path else {})
        if split == "train":
            return choices.training_rows(options.num_negatives)
        return choices.ranked(options.top_k)

    def check(
        self, split: str, examples: Sequence[Any], train_examples: Sequence[Match]
    ) -> Iterator[str]:
        """Yields what looks wrong in the texts; and training pairs in the evaluation."""
        texts = [texts for _, texts in self.identity(examples) if texts]
        if split == "predict":
            path = find_files(self.options, [split])[split]
            yield from self.tokenizer.check_texts(path, texts)
            return
        data = self._data(split)
        yield from self.tokenizer.check_texts(data.path, texts)
        # Scored pairs have no rows with negatives: each becomes a pair.
        yield from data.check(split, train_examples, self.options.row_negatives or None)
        is_graded = len({match.score for match in data.matches if match.score}) > 1
        if split == "train" and is_graded and self.options.loss != POINTWISE:
            ignored = f"--loss={self.options.loss} ignores the grades of relevance"
            yield f"{data.path}: {ignored}, unlike --loss={POINTWISE}"

    def identity(self, examples: Sequence[Any]) -> Iterator[tuple[Any, Sequence[str]]]:
        """Returns each row or candidate with its texts; of an evaluation, also the relevance."""
        if isinstance(examples, Ranked):
            yield [gains.tolist() for gains in examples.gains], []
        for x in examples:
            yield x, [*x[:2], *x.negatives] if isinstance(x, Match) else [*x[:2]]

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares a pair [S]; in training, P pairs [P, S], and the relevance of the first."""
        length, count = self.options.max_seq_length, 1 + self.options.row_negatives
        if split != "train":
            return sequence_features(length)
        return *sequence_features(length, count), Feature("relevance", dtype="float32")

    def featurize(self, examples: Sequence[Any], split: str) -> dict[str, np.ndarray]:
        """Returns a row for each example: a pair, or a query with its P passages."""
        passages = [[x[1], *x.negatives] if isinstance(x, Match) else [x[1]] for x in examples]
        pairs = [Text(x[0], y) for x, found in zip(examples, passages, strict=True) for y in found]
        packed = convert_examples(pairs, None, self.options.max_seq_length, self.tokenizer)
        if split != "train":
            return packed
        shape = len(examples), 1 + self.options.row_negatives, -1
        rows = {name: x.reshape(shape) for name, x in packed.items()}  # [E, P, S]
        relevance = np.array([match.score for match in examples], np.float32)
        return {**rows, CUT_TOKENS: rows[CUT_TOKENS].sum(axis=(1, 2)), "relevance": relevance}

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder with a head for one number."""
        from bert_tf.tasks.ranking.model import BertCrossEncoder

        return BertCrossEncoder(self.config, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]; in pointwise training, the mean of its pairs."""
        from bert_tf.modeling import losses

        logits = outputs["logits"]  # [B, P]
        ops = array_ops.namespace(logits)
        if self.options.loss != POINTWISE:
            return losses.cross_entropy(logits, ops.zeros_like(logits[:, 0], "int32"))
        first = ops.expand_dims(batch["relevance"], axis=1)
        relevance = ops.concatenate([first, ops.zeros_like(logits[:, 1:])], axis=1)
        return ops.mean(losses.binary_cross_entropy(logits, relevance), axis=1)

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> dict[str, Any]:
        """Selects `score` [B]; an exported model also returns `probability` [B]."""
        score = outputs["logits"][:, 0]
        return {"score": score, **({"probability": array_ops.sigmoid(score)} if serving else {})}

    def decode(
        self, examples: Sequence[Candidate], outputs: Mapping[str, np.ndarray]
    ) -> list[Relevance]:
        """Returns the relevance of each pair."""
        scores = outputs["score"]
        return [*map(Relevance, scores.tolist(), array_ops.sigmoid(scores).tolist())]

    def metrics(self, examples: Ranked, predictions: Sequence[Relevance]) -> dict[str, Any]:
        """Computes metrics of the rankings, and the MRR without the model."""
        what, value, metric = self._baseline(examples)
        name = f"eval_{what.replace(' ', '_')}_{metric}"
        return {**_rank(examples, predictions).metrics(), name: np.float32(value)}

    def _baseline(self, examples: Ranked) -> tuple[str, float, str]:
        """Returns name and MRR of the order of the run or, without one, of random order."""
        indexes = examples.split(-np.arange(len(examples)))
        if value_for(self.options.run_file or "", "eval"):
            values = rank_candidates(indexes, examples.gains).values["mrr@10"]
            return "first stage", float(np.mean(values)), "mrr@10"
        values = map(_chance_mrr, map(len, indexes), map(np.count_nonzero, examples.gains))
        return "chance", float(np.mean([*values])), "mrr@10"

    def evaluation_report(
        self, examples: Ranked, predictions: Sequence[Relevance], losses: np.ndarray | None
    ) -> EvaluationReport:
        """Describes each query with the passage that was found, worst first."""
        ranking = _rank(examples, predictions).worst_first()
        query, relevant = zip(*(examples.judged[index] for index in ranking.queries), strict=True)
        found = [*map(examples.passage, ranking.queries, ranking.best)]
        columns = {"query": query, "relevant": relevant, "found": found}
        return ranking_report(ranking, columns, self._baseline(examples))

    def write(
        self,
        split: str,
        examples: Sequence[Candidate],
        predictions: Sequence[Relevance],
        folder: str,
    ) -> Written:
        """Writes a TREC run, best first; of an evaluation, only logs if the order is better."""
        if isinstance(examples, Ranked):
            what, before, name = self._baseline(examples)
            after = _rank(examples, predictions).metrics()[f"eval_{name}"]
            found = f"{name} = {after:.4f}, {what}: {before:.4f}"
            if after <= before:
                warn(f"{found}: the model is no better", fix="Train longer, or on more data")
            else:
                note(found)
            return Written()
        lines: list[str] = []
        pairs = zip(examples, predictions, strict=True)
        for query, group in itertools.groupby(pairs, lambda pair: pair[0].query_id):
            ordered = sorted(group, key=lambda pair: -pair[1].score)
            for rank, (candidate, (score, _)) in enumerate(ordered, start=1):
                lines.append(f"{query} Q0 {candidate.passage_id} {rank} {score:.9g} bert_tf\n")
        return Written(files.write_texts(folder, {RERANKED: "".join(lines)}))

    def from_inputs(self, inputs: Sequence[Any]) -> list[Candidate]:
        """Converts tuples of a query and a passage."""
        require_texts(inputs, [2], "a tuple of a query and a passage")
        return [Candidate(*item) for item in inputs]


def _rank(examples: Ranked, predictions: Sequence[Relevance]) -> ranking_metrics.Ranking:
    scores = np.array([prediction.score for prediction in predictions], np.float32)
    return rank_candidates(examples.split(scores), examples.gains)


def _chance_mrr(num_candidates: int, num_relevant: int) -> float:
    """Returns the expected MRR@10 of random order."""
    left = (max(num_candidates - rank, 0) for rank in range(11))
    # That none of the first ones is relevant.
    odds = [math.comb(x, num_relevant) / math.comb(num_candidates, num_relevant) for x in left]
    return sum((x - y) / rank for rank, (x, y) in enumerate(itertools.pairwise(odds), 1))
