"""Bi-encoders: vectors of texts whose cosine says whether the texts match.

As in Reimers and Gurevych 2019, "Sentence-BERT". Shapes: E examples, P passages of each, S
max_seq_length, D size of a vector.
"""

import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import lint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.formats.sentence_transformers import declaration
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.matches import Match, Matches, read_matches
from bert_tf.data.packing import CUT_TOKENS, pack_batch
from bert_tf.data.ranking_metrics import (
    CORRELATIONS,
    RANKING,
    Judgment,
    Ranking,
    correlations,
    rank,
)
from bert_tf.data.texts import require_room
from bert_tf.finetuning.distillation import VectorTeacher
from bert_tf.finetuning.encoder import vector_spec, warn_of_other_vectors
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.run_metadata import warn_of_other_inputs
from bert_tf.finetuning.task import Metric, Schema, Task, Traits
from bert_tf.report.evaluation import EvaluationReport, ranking_report
from bert_tf.tasks.embeddings.options import IN_BATCH, EmbeddingsOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer


class Text(NamedTuple):
    """A text to encode, with its prefix."""

    text: str
    is_query: bool = False


class Judged(list[Text]):
    """The distinct texts of an evaluation, queries first, and what is known about their pairs."""

    def __init__(self, data: Matches, query_prefix: str, passage_prefix: str) -> None:
        queries = dict.fromkeys(match.anchor for match in data.matches)
        query_ids, passage_ids = (
            {text: i for i, text in enumerate(x)} for x in (queries, data.passages)
        )
        super().__init__(Text(query_prefix + x, True) for x in queries)
        self += [Text(passage_prefix + x) for x in passage_ids]
        self.num_queries = len(queries)
        self.judgments: list[Judgment] = []
        for anchor, positive, negatives, score in data.matches:
            query = query_ids[anchor]
            self.judgments.append((query, passage_ids[positive], score))
            self.judgments += [(query, passage_ids[x], 0.0) for x in negatives]
        # A query that is also a passage does not find itself.
        self.ignored = {query_ids[x]: passage_ids[x] for x in queries if x in passage_ids}


class Embeddings(Task):
    """Trains and evaluates a bi-encoder."""

    options: EmbeddingsOptions

    def __init__(
        self, options: EmbeddingsOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)
        # (split) -> its matches; a file is read only once: it may be a pipe.
        self._data = functools.cache(lambda s: read_matches(options, s, options.is_scored(s)))

    @property
    def traits(self) -> Traits:
        """Metrics of scored pairs or of retrieval; most losses depend on the batch."""
        names = CORRELATIONS if self.options.is_scored("eval") else RANKING
        depends_on = {"batch"} if self.options.loss != "cosine" else set()
        soft_targets = ("sentence_embedding", "vectors"), ("passages", "vectors")
        return Traits(tuple(map(Metric, names)), soft_targets, frozenset(depends_on), unit="text")

    @property
    def vector_size(self) -> int:
        """The size of a vector, D."""
        return self.config.hidden_size * len(self.options.pooling.split("_"))

    def infer_schema(self, source: str | RunFolder) -> Schema:
        """Declares how vectors are made, as sentence-transformers does."""
        options, size = self.options, self.vector_size
        if any(x > size for x in options.sizes):
            raise UserError(f"--matryoshka_dims={options.matryoshka_dims} exceeds the size {size}")
        prompts = {"query": options.query_prefix, "passage": options.passage_prefix}
        for name, limit in (("query", options.query_length), ("passage", options.max_seq_length)):
            require_room(f"{name}_prefix", self.tokenizer.reference.tokenize(prompts[name]), limit)
        arguments = options.pooling, options.normalize, options.max_seq_length
        return Schema(files=declaration(*arguments, self.config.hidden_size, prompts))

    def open_teacher(self, devices: Any) -> VectorTeacher:
        """Opens any encoder; its vectors are made as it declares, or else as those of this run."""
        run, path = self.options, self.options.teacher or ""
        lower_case = find_source(path).do_lower_case
        spec = vector_spec(RunFolder.of(path), default=run.pooling)
        spell = str.lower if spec.lower_case else str
        teacher_options = EmbeddingsOptions(
            init_checkpoint=path,
            do_lower_case=run.do_lower_case if lower_case is None else lower_case,
            pooling=spec.pooling,
            max_seq_length=spec.max_seq_length or run.max_seq_length,
            query_prefix=spec.prefix(is_query=True),
            passage_prefix=spec.prefix(is_query=False),
        )
        teacher = Embeddings(*read_model_files(teacher_options))
        query_prefix, prefix = teacher.options.query_prefix, teacher.options.passage_prefix
        if (size := teacher.vector_size) != self.vector_size:
            own = f"but this model of {self.vector_size}"
            raise UserError(f"--teacher={path} has vectors of size {size}, {own}")

        def texts(match: Match) -> list[Text]:
            passages = [Text(spell(prefix * bool(x) + x)) for x in self._passages(match)]
            query = Text(spell(query_prefix + match.anchor), True)
            return [query, query if run.translations else passages[0], *passages[1:]]

        return VectorTeacher(self, teacher, texts, (1 + run.num_passages, size), devices)

    def _passages(self, match: Match) -> list[str]:
        count = self.options.num_passages
        return ([match.positive, *match.negatives] + [""] * count)[:count]

    def read(self, split: str) -> Sequence[Any]:
        """Reads the matches to train on, or the texts and judgments of an evaluation."""
        data = self._data(split)
        if split == "train":
            return data.matches
        return Judged(data, self.options.query_prefix, self.options.passage_prefix)

    def check(
        self, split: str, examples: Sequence[Any], train_examples: Sequence[Match]
    ) -> Iterator[str]:
        """Yields what looks wrong in the texts; and training pairs in the evaluation."""
        texts = [texts for _, texts in self.identity(lint.sample(examples))]
        options, data = self.options, self._data(split)
        yield from self.tokenizer.check_texts(data.path, texts)
        prefixes = options.query_prefix, options.passage_prefix
        yield from data.check(split, train_examples, options.num_passages - 1, prefixes)
        num_queries = examples.num_queries if isinstance(examples, Judged) else 0
        if 0 < num_queries == len(examples) - 1 and not options.is_scored(split):
            yield f"{data.path}: only 1 passage: all metrics are 1"
        if split == "train" and options.sizes and self.vector_size not in options.sizes:
            yield f"--matryoshka_dims leaves out the whole size, {self.vector_size}"
        folder = RunFolder.of(options.init_checkpoint or "")
        if split == "train" and folder.script == "run_embeddings":
            warn_of_other_inputs(folder, options, options.max_seq_length)
        elif split == "train" and options.init_checkpoint:
            used = {"query": options.query_prefix, "passage": options.passage_prefix}
            warn_of_other_vectors(folder, options.poolings, None, used)

    def identity(self, examples: Sequence[Any]) -> Iterator[tuple[Any, Sequence[str]]]:
        """Returns each match with its texts; of an evaluation, each text, and the judgments."""
        if isinstance(examples, Judged):
            yield examples.judgments, []
        for x in examples:
            yield x, [x.text] if isinstance(x, Text) else [x.anchor, x.positive, *x.negatives]

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares a text [S]; in training, anchor, passages [P, S], text ids [1 + P], score."""
        if split != "train":
            return sequence_features(self.options.max_seq_length)
        count, length = self.options.num_passages, self.options.max_seq_length
        return (
            *sequence_features(self.options.query_length),
            *sequence_features(length, count, prefix="passages/"),
            Feature("text_ids", 1 + count),
            Feature("score", dtype="float32"),
        )

    def featurize(self, examples: Sequence[Any], split: str) -> dict[str, np.ndarray]:
        """Returns a row for each match, or for each text."""
        options, length = self.options, self.options.max_seq_length
        if split != "train":
            is_query = np.array([example.is_query for example in examples], bool)
            limits = np.where(is_query, options.query_length, length)
            return self._pack([example.text for example in examples], limits, length)
        count = self.options.num_passages
        rows = [self._passages(match) for match in examples]
        queries = [options.query_prefix + match.anchor for match in examples]
        passages = [options.passage_prefix * bool(x) + x for row in rows for x in row]
        packed = self._pack(queries, options.query_length, options.query_length)
        others = self._pack(passages, length, length)
        cut = packed[CUT_TOKENS] + others.pop(CUT_TOKENS).reshape(-1, count).sum(axis=1)
        packed |= {f"passages/{n}": x.reshape(-1, count, length) for n, x in others.items()}
        ids = [[_text_id(x) for x in (m.anchor, *r)] for m, r in zip(examples, rows, strict=True)]
        scores = np.array([match.score for match in examples], np.float32)
        return {**packed, CUT_TOKENS: cut, "text_ids": np.array(ids, np.int32), "score": scores}

    def _pack(self, texts: Sequence[str], limits: Any, length: int) -> dict[str, np.ndarray]:
        vocab = self.tokenizer.reference.vocab
        ids = self.tokenizer.encode(texts)
        kept = np.minimum(ids.lengths, np.asarray(limits) - 2)
        shortened = ids.take(np.arange(len(texts)), np.zeros_like(kept), kept)
        packed = pack_batch(shortened, None, length, vocab["[CLS]"], vocab["[SEP]"])
        return {**packed, CUT_TOKENS: ids.lengths - kept}

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder."""
        from bert_tf.tasks.embeddings.model import BertBiEncoder

        pooling, normalize = self.options.poolings, self.options.normalize
        return BertBiEncoder(self.config, pooling=pooling, normalize=normalize, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]: the sum over the sizes of Matryoshka vectors."""
        from bert_tf.modeling import losses

        options, scores = self.options, batch["score"]
        total: Any = 0.0
        for size in options.sizes or [None]:
            anchors = outputs["sentence_embedding"][:, :size]
            passages = outputs["passages"][:, :, :size]
            if options.loss == IN_BATCH:
                ids, settings = batch["text_ids"], (options.loss_scale, options.symmetric)
                total += losses.multiple_negatives(anchors, passages, ids, *settings)
                continue
            cosines = losses.cosines(anchors, passages[:, 0])
            if options.loss == "cosent":
                total += losses.cosent(cosines, scores, options.loss_scale)
            else:
                total += (cosines - scores) ** 2
        return total

    def decode(self, examples: Sequence[Any], outputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the vectors [E, D]."""
        return outputs["sentence_embedding"]

    def metrics(self, examples: Judged, predictions: np.ndarray) -> dict[str, Any]:
        """Computes metrics of the cosines of vectors; also of shorter Matryoshka vectors."""
        found: dict[str, Any] = {}
        for size in (None, *(x for x in self.options.sizes if x != self.vector_size)):
            vectors = predictions[:, :size]
            if self.options.is_scored("eval"):
                values = correlations(*_cosines_and_scores(examples, vectors))
            else:
                values = _rank(examples, vectors).metrics()
            found |= {name + f"_{size}" * bool(size): value for name, value in values.items()}
        return found

    def evaluation_report(
        self, examples: Judged, predictions: np.ndarray, losses: np.ndarray | None
    ) -> EvaluationReport:
        """Describes scored pairs, worst first; or each query with the passage that was found."""
        num_queries, judgments = examples.num_queries, examples.judgments
        if self.options.is_scored("eval"):
            cosines, scores = _cosines_and_scores(examples, predictions)
            order = np.argsort(-np.square(cosines - scores), kind="stable")
            pairs = [judgments[index] for index in order]
            texts = {
                "anchor": [examples[query].text for query, _, _ in pairs],
                "text": [examples[num_queries + passage].text for _, passage, _ in pairs],
            }
            values = {"score": scores[order], "cosine": cosines[order]}
            numbers = values["score"][:, None], values["cosine"][:, None]
            baseline = "chance", 0.0, "spearman"
            return EvaluationReport(columns=texts | values, numbers=numbers, baseline=baseline)
        ranking = _rank(examples, predictions).worst_first()
        relevant = {query: passage for query, passage, value in reversed(judgments) if value > 0}
        columns = {
            "query": [examples[query].text for query in ranking.queries],
            "relevant": [examples[num_queries + relevant[query]].text for query in ranking.queries],
            "found": [examples[num_queries + best].text for best in ranking.best],
        }
        num_relevant = len({(query, passage) for query, passage, value in judgments if value > 0})
        chance = num_relevant / (len(ranking.queries) * (len(examples) - num_queries))
        return ranking_report(ranking, columns, ("chance", chance, ""))

    def from_inputs(self, inputs: Sequence[Any]) -> list[Text]:
        """Takes strings as they are: a prefix is part of the string."""
        require_texts(inputs, [1], "a string")
        return [Text(text) for text in inputs]


def _cosines_and_scores(examples: Judged, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cosine and the score of each judged pair."""
    queries, passages = np.split(array_ops.normalize(vectors), [examples.num_queries])
    left, right, scores = map(np.array, zip(*examples.judgments, strict=True))
    return (queries[left] * passages[right]).sum(axis=1), scores


def _rank(examples: Judged, vectors: np.ndarray) -> Ranking:
    queries, passages = np.split(array_ops.normalize(vectors), [examples.num_queries])
    return rank(queries, passages, examples.judgments, examples.ignored)


def _text_id(text: str) -> int:
    """Returns a checksum of 31 bits, which is 0 only for the empty text."""
    return (zlib.crc32(text.encode(errors="surrogatepass")) & 0x7FFFFFFF or 1) if text else 0
