"""Options of `run_embeddings.py`."""

import dataclasses

from bert_tf.data.split_files import SplitFileOptions
from bert_tf.declare import DATA, MODEL, RESULTS, ROWS, WEIGHTS, option, value_for
from bert_tf.errors import UserError
from bert_tf.options.fine_tuning import FineTuningOptions
from bert_tf.tables.columns import parse_number

# Tasks whose files are not tables, and the task of a user's own tables.
BEIR, SQUAD, TABLES = "beir", "squad", "tsv"
IN_BATCH = "multiple_negatives"


def _table(anchor: str, positive: str, **flags: str) -> dict[str, str]:
    columns = {"anchor_column": anchor, "positive_column": positive}
    return {"train_file": "train.tsv", "eval_file": "dev.tsv", **columns, **flags}


_QQP = {"label_column": "is_duplicate"}
_QNLI = {"label_column": "label", "positive_label": "entailment"}
_NLI = {**_QNLI, "label_column": "gold_label", "negative_label": "contradiction"}
_SNLI = {"train_file": "snli_1.0_train.jsonl", "eval_file": "snli_1.0_dev.jsonl"}
_TRIPLES = {"train_file": "triples.train.small.tsv", "eval_file": "triples.dev.tsv"}
# Published data sets: the flags that describe their files.
PUBLISHED: dict[str, dict[str, str]] = {
    "sts-b": _table("sentence1", "sentence2", score_column="score", score_range="0,5"),
    "mnli": _table("sentence1", "sentence2", **{**_NLI, "eval_file": "dev_matched.tsv"}),
    "snli": _table("sentence1", "sentence2", **_NLI, **_SNLI),
    "qqp": _table("question1", "question2", **_QQP),
    "qnli": _table("question", "sentence", **_QNLI, negative_label="not_entailment"),
    "msmarco": _table("1", "2", negative_columns="3", **_TRIPLES),
    SQUAD: {"train_file": "train-v1.1.json", "eval_file": "dev-v1.1.json"},
    BEIR: {"train_file": "qrels/train.tsv", "eval_file": "qrels/dev.tsv"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingsOptions(SplitFileOptions, FineTuningOptions, affects=DATA):
    """Options of `run_embeddings.py`."""

    task_name: str = option(
        TABLES,
        "tsv for your own TSV, CSV and JSON-lines files; or a data set with its usual files: "
        "sts-b, mnli, snli, qqp, qnli, msmarco (triples), squad, or beir (any data set in BEIR's "
        "layout).",
    )
    anchor_column: str | None = option(
        None,
        "Column of the query or first text, by name, number or, in JSON, path. Another one for a "
        "split: question,eval:sentence1.",
    )
    positive_column: str | None = option(
        None, "Column of a text that matches it, or of the second text of a scored or labeled pair."
    )
    negative_columns: str | None = option(
        None, "Columns of texts that do not match; in JSON, also one key with a list of texts."
    )
    score_column: str | None = option(
        None, "Column of the similarity of the two texts, a number. For one split: eval:score."
    )
    score_range: str = option(
        "0,1", "Lowest and highest score, which become 0 and 1.", affects=WEIGHTS | DATA
    )
    label_column: str | None = option(
        None, "Column of a label that says whether the two texts match. Other labels are skipped."
    )
    positive_label: str = option("1", "Label of texts that match.")
    negative_label: str = option(
        "0", "Label of texts that do not match: a hard negative of the anchor, or score 0."
    )
    loss: str = option(
        IN_BATCH,
        "multiple_negatives: cross entropy of the positive among all passages of the batch; "
        "cosent: ranks pairs by their scores; cosine: squared error of the cosine and the score.",
        affects=ROWS,
        choices=(IN_BATCH, "cosent", "cosine"),
    )
    loss_scale: float = option(
        20.0,
        "Factor of cosines in multiple_negatives and cosent, 1 / temperature.",
        affects=WEIGHTS,
        limits=(0.01, 1000),
    )
    symmetric: bool = option(
        False, "Also find the anchor of each positive (multiple_negatives).", affects=WEIGHTS
    )
    num_negatives: int = option(
        1, "Maximum number of hard negatives per row in training.", affects=ROWS, limits=(0, 100)
    )
    matryoshka_dims: str | None = option(
        None,
        "Train vectors of which the first numbers are useful alone: the loss is the sum over these "
        "sizes, such as 768,256,64.",
        affects=WEIGHTS,
    )
    pooling: str = option(
        "mean",
        "How token vectors become the vector of a text.",
        affects=WEIGHTS | MODEL,
        choices=("mean", "cls", "max", "mean_max"),
    )
    normalize: bool = option(False, "Scale vectors to length 1.", affects=RESULTS | MODEL)
    max_query_length: int = option(
        0,
        "Maximum length of anchors in tokens, if less than --max_seq_length. 0: the same.",
        affects=ROWS | MODEL,
        limits=(0, 2**31 - 1),
    )
    query_prefix: str = option(
        "", "Written before each query, such as 'query: '.", affects=ROWS | MODEL
    )
    passage_prefix: str = option("", "Written before each other text.", affects=ROWS | MODEL)
    eval_batch_size: int = option(32, "Evaluation batch size, in texts.", affects=RESULTS)

    @property
    def data(self) -> "EmbeddingsOptions":
        """These options, with those of a published data set where they are unset."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        known = PUBLISHED.get(self.task_name.lower(), {})
        unset = {n: v for n, v in known.items() if getattr(self, n) == defaults[n]}
        return dataclasses.replace(self, **unset)

    def columns(self, split: str) -> dict[str, str]:
        """Returns purpose -> column in the file of a split, see `find_positions`."""
        names = ("anchor_column", "positive_column", "negative_columns", "score_column")
        found = {n: value_for(getattr(self, n) or "", split) for n in (*names, "label_column")}
        return {name.removesuffix("_column"): column for name, column in found.items() if column}

    def is_scored(self, split: str) -> bool:
        """Whether the pairs of a split have scores, or labels that count as scores."""
        columns = self.data.columns(split)
        return "score" in columns or (self.loss != IN_BATCH and "label" in columns)

    @property
    def sizes(self) -> list[int]:
        """The sizes in `matryoshka_dims`; UserError if they are invalid."""
        parts = self.matryoshka_dims.split(",") if self.matryoshka_dims else []
        if not all(part.strip().isdecimal() and int(part) for part in parts):
            expected = "--matryoshka_dims must be numbers, such as 768,256"
            raise UserError(f"{expected}. Received: {self.matryoshka_dims}")
        return [int(part) for part in parts]

    @property
    def score_limits(self) -> tuple[float, float]:
        """Lowest and highest score; UserError if `score_range` is invalid."""
        low, high = map(parse_number, f"{self.score_range},".split(",")[:2])
        if low is None or high is None or low >= high:
            expected = "--score_range must be two numbers, such as 0,5"
            raise UserError(f"{expected}. Received: {self.score_range}")
        return low, high

    @property
    def query_length(self) -> int:
        """Maximum number of tokens of a query."""
        return min(self.max_query_length or self.max_seq_length, self.max_seq_length)

    def check(self) -> None:
        """Checks the options without reading any data files."""
        super().check()
        data, names = self.data, (*PUBLISHED, TABLES)
        _ = self.sizes, data.score_limits
        if self.task_name.lower() not in names:
            expected = f"--task_name must be one of {', '.join(names)}"
            raise UserError(f"{expected}. Received: {self.task_name}")
        if self.do_predict:
            advice = "pass this --output_dir as --init_checkpoint to extract_features.py"
            raise UserError(f"--do_predict is not supported: {advice}")
        has_columns = data.anchor_column and data.positive_column
        if not has_columns and self.task_name.lower() not in (SQUAD, BEIR):
            raise UserError("Your own tables need --anchor_column and --positive_column")
        found = {"score", "label"} & data.columns("train").keys()
        if self.do_train and self.loss != IN_BATCH and not found:
            raise UserError(f"--loss={self.loss} needs --score_column or --label_column")
        if self.do_train and self.loss == IN_BATCH and "score" in found:
            raise UserError(f"--loss={IN_BATCH} would ignore the scores: pass --loss=cosent")
        if self.do_train and self.loss != "cosine" and self.train_batch_size == 1:
            raise UserError(f"--loss={self.loss} compares rows: raise --train_batch_size=1")

    def _not_needed(self) -> set[str]:
        return super()._not_needed() | ({"data_dir"} if self.names_files else set())
