"""Options of `run_ranking.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.data.match_options import MatchOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, PATH, RESULTS, ROWS, option

POINTWISE = "pointwise"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingOptions(MatchOptions, FineTuningOptions, affects=DATA):
    """Options of `run_ranking.py`."""

    loss: str = option(
        POINTWISE,
        "pointwise: binary cross entropy of each pair, whose relevance may be graded; listwise: "
        "cross entropy of the relevant passage among the passages of its row.",
        affects=ROWS,
        choices=(POINTWISE, "listwise"),
    )
    num_negatives: int = option(
        4,
        "Number of passages in a row of training that are not relevant: its hard negatives, then "
        "candidates in --run_file, then random passages of the data.",
        affects=ROWS,
        limits=(0, 100),
    )
    run_file: str | None = option(
        None,
        "Candidates that a search found: a TREC run, or a file like MS MARCO's top1000.dev. "
        "Training draws negatives from them, and the evaluation reranks them. For one split: "
        "train:a.trec,eval:b.trec.",
        affects=DATA | PATH,
    )
    top_k: int = option(
        100,
        "Number of candidates of each query that are used: the first of a run; or, in the "
        "evaluation of queries without hard negatives, the relevant passages and random ones.",
        limits=(1, 2**31 - 1),
    )
    eval_batch_size: int = option(32, "Evaluation batch size, in pairs.", affects=RESULTS)

    def is_scored(self, split: str) -> bool:
        """Whether `split` is "train", and its rows are pairs with a score or a relevance label."""
        columns = self.data.columns("train") if split == "train" else {}
        return "score" in columns or (self.loss == POINTWISE and "label" in columns)

    @property
    def row_negatives(self) -> int:
        """Number of negatives in a training row."""
        return 0 if self.is_scored("train") else self.num_negatives

    def check(self) -> None:
        """Checks the options without reading any data files."""
        super().check()
        if self.do_train or self.evaluates:
            self.check_columns()
        if self.do_train and self.loss != POINTWISE and self.is_scored("train"):
            raise UserError(f"--loss={self.loss} would ignore the scores: pass --loss={POINTWISE}")
        if self.do_train and not (self.is_scored("train") or self.num_negatives):
            raise UserError("--num_negatives must be at least 1 without scores or labels")
