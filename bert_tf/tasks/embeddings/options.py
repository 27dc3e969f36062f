"""Options of `run_embeddings.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.data.match_options import MatchOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, MODEL, RESULTS, ROWS, WEIGHTS, option

IN_BATCH = "multiple_negatives"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingsOptions(MatchOptions, FineTuningOptions, affects=DATA):
    """Options of `run_embeddings.py`."""

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
        limits=(1, 1000),
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
        "Maximum length of anchors in tokens, at most --max_seq_length, which is also that of 0.",
        affects=ROWS | MODEL,
        limits=(0, 2**31 - 1),
    )
    query_prefix: str = option(
        "", "Written before each query, such as 'query: '.", affects=ROWS | MODEL
    )
    passage_prefix: str = option("", "Written before each other text.", affects=ROWS | MODEL)
    translations: bool = option(
        False,
        "The positive is a translation of the anchor: the --teacher's vector of the anchor is the "
        "target of both.",
        affects=ROWS,
        needs=("teacher",),
    )
    eval_batch_size: int = option(32, "Evaluation batch size, in texts.", affects=RESULTS)

    def is_scored(self, split: str) -> bool:
        """Whether the pairs of a split have scores, or labels that count as scores."""
        columns = self.data.columns(split)
        return "score" in columns or (self.loss != IN_BATCH and "label" in columns)

    @property
    def poolings(self) -> str:
        """`pooling` for `array_ops.pool`, in the order of sentence-transformers."""
        return {"mean_max": "max_mean"}.get(self.pooling, self.pooling)

    @property
    def num_passages(self) -> int:
        """Number of passages in a row of training: the positive and hard negatives, if any."""
        has_negatives = {"negative_columns", "label"} & set().union(*self.training_columns())
        return 1 + self.num_negatives * bool(has_negatives and self.loss == IN_BATCH)

    @property
    def sizes(self) -> list[int]:
        """The sizes in `matryoshka_dims`; UserError if they are invalid."""
        parts = self.matryoshka_dims.split(",") if self.matryoshka_dims else []
        sizes = [int(part) for part in parts if part.strip().isdecimal()]
        if len({*sizes} - {0}) < len(parts):
            expected = "--matryoshka_dims must be distinct numbers, such as 768,256"
            raise UserError(f"{expected}. Received: {self.matryoshka_dims}")
        return sizes

    @property
    def query_length(self) -> int:
        """Maximum number of tokens of a query."""
        return self.max_query_length or self.max_seq_length

    def check(self) -> None:
        """Checks the options without reading any data files."""
        super().check()
        self.check_columns()
        _ = self.sizes
        if not 3 <= self.query_length <= self.max_seq_length:
            expected = f"between 3 and --max_seq_length={self.max_seq_length}"
            raise UserError(f"--max_query_length must be {expected}. Received: {self.query_length}")
        if self.do_predict:
            raise UserError("--do_predict is not supported: use extract_features.py")
        for columns in self.training_columns() if self.do_train else []:
            if self.loss != IN_BATCH and columns.isdisjoint({"score", "label"}):
                raise UserError(f"--loss={self.loss} needs --score_column or --label_column")
            if self.loss == IN_BATCH and "score" in columns:
                raise UserError(f"--loss={IN_BATCH} would ignore the scores: pass --loss=cosent")
        if self.do_train and self.loss != "cosine" and self.train_batch_size == 1:
            raise UserError(f"--loss={self.loss} compares rows: raise --train_batch_size=1")
