"""Options that describe files with texts that match: which columns they have, or which data set."""

import dataclasses
from typing import Self

from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError
from bert_tf.data.split_files import LayoutOptions, SplitFileOptions
from bert_tf.options.declare import DATA, PATH, option, value_for
from bert_tf.tables.columns import parse_number

# Tasks whose files are not tables, and the task of a user's own tables.
BEIR, MS_MARCO, SQUAD, TABLES = "beir", "msmarco", "squad", "tsv"


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
    MS_MARCO: _table("1", "2", negative_columns="3", **_TRIPLES),
    SQUAD: {"train_file": "train-v1.1.json", "eval_file": "dev-v1.1.json"},
    BEIR: {"train_file": "qrels/train.tsv", "eval_file": "qrels/dev.tsv"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchOptions(SplitFileOptions, LayoutOptions, affects=DATA):
    """Options of `read_matches`."""

    task_name: str = option(
        TABLES,
        "tsv for your own TSV, CSV and JSON-lines files; or a data set with its usual files: "
        "sts-b, mnli, snli, qqp, qnli, msmarco (triples; or qrels, passed by name), squad, or beir "
        "(any data set in BEIR's layout).",
    )
    anchor_column: str | None = option(
        None,
        "Column of the query or first text, by name, number or, in JSON, path. Another one for a "
        "split: question,eval:sentence1.",
    )
    positive_column: str | None = option(
        None,
        "Column of a text that matches it, or of the second text of a scored or labeled pair; in "
        "JSON, also one key with a list of texts, each of which makes a pair.",
    )
    negative_columns: str | None = option(
        None, "Columns of texts that do not match; in JSON, also one key with a list of texts."
    )
    score_column: str | None = option(
        None, "Column of the similarity of the two texts, a number. For one split: eval:score."
    )
    score_range: str = option("0,1", "Lowest and highest score, which become 0 and 1.")
    label_column: str | None = option(
        None, "Column of a label that says whether the two texts match. Other labels are skipped."
    )
    positive_label: str = option("1", "Label of texts that match.")
    negative_label: str = option(
        "0", "Label of texts that do not match: a hard negative of the anchor, or score 0."
    )
    mix_with: str | None = option(
        None,
        "Further training data, shuffled together with the others: snli:FOLDER,qqp:FOLDER, with "
        "the names of --task_name; with --task_name=tsv also tsv:FILE, with the same columns. Each "
        "data set has a share in proportion to its size; list one twice to double it.",
        affects=DATA | PATH,
    )

    @property
    def data(self) -> Self:
        """These options, with those of a published data set where they are unset."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        known = PUBLISHED.get(self.task_name.lower(), {})
        unset = {n: v for n, v in known.items() if getattr(self, n) == defaults[n]}
        return dataclasses.replace(self, **unset)

    def data_sets(self) -> list[Self]:
        """Returns these options and, for each data set in `mix_with`, those to read it.

        Raises:
            UserError: `mix_with` is invalid.
        """
        defaults = {f.name: f.default for f in dataclasses.fields(MatchOptions)}
        task, found = self.task_name.lower(), [self]
        names = [*PUBLISHED, *[TABLES] * (task == TABLES)]
        for entry in file_names.split(self.mix_with or ""):
            name, _, path = entry.partition(":")
            if name.lower() not in names or not path:
                expected = f"--mix_with must be like snli:FOLDER, with one of {', '.join(names)}"
                raise UserError(f"{expected}. Received: {entry}")
            # The flags describe the files of --task_name, not those of other data sets.
            changes = {**defaults, **(vars(self) if name.lower() == task else {})}
            changes |= {"task_name": name, "mix_with": None, "data_dir": None, "train_file": None}
            changes |= {"data_dir" if files.is_dir(path) else "train_file": path}
            found.append(dataclasses.replace(self, **changes))
        return found

    def columns(self, split: str) -> dict[str, str]:
        """Returns purpose -> column in the file of a split, see `find_positions`."""
        names = ("anchor_column", "positive_column", "negative_columns", "score_column")
        found = {n: value_for(getattr(self, n) or "", split) for n in (*names, "label_column")}
        return {name.removesuffix("_column"): column for name, column in found.items() if column}

    def training_columns(self) -> list[set[str]]:
        """Returns the purposes of the columns of each data set to train on."""
        return [{*data_set.data.columns("train")} for data_set in self.data_sets()]

    @property
    def score_limits(self) -> tuple[float, float]:
        """Lowest and highest score; UserError if `score_range` is invalid."""
        low, high, *more = map(parse_number, f"{self.score_range},".split(","))
        if low is None or high is None or low >= high or more != [None]:
            expected = "--score_range must be two numbers, such as 0,5"
            raise UserError(f"{expected}. Received: {self.score_range}")
        return low, high

    def check_columns(self) -> None:
        """Raises a UserError if the options do not describe a file."""
        data, names = self.data, (*PUBLISHED, TABLES)
        _ = data.score_limits
        if self.task_name.lower() not in names:
            expected = f"--task_name must be one of {', '.join(names)}"
            raise UserError(f"{expected}. Received: {self.task_name}")
        is_table = self.task_name.lower() not in (SQUAD, BEIR)
        if is_table and not (data.anchor_column and data.positive_column):
            raise UserError("Your own tables need --anchor_column and --positive_column")
        if columns := not is_table and [*self.columns("train"), *self.columns("eval")]:
            name = columns[0] if columns[0].endswith("s") else f"{columns[0]}_column"
            problem = f"the files of --task_name={self.task_name} have fixed field names"
            raise UserError(problem, at=f"--{name}")
        for split in ("train", "eval"):
            if {"score", "label"} <= {*data.columns(split)}:
                raise UserError(f"--score_column and --label_column both describe the {split} file")
        described = {"score_range": "score_column"}
        described |= dict.fromkeys(("positive_label", "negative_label"), "label_column")
        for name, column in described.items():
            if getattr(data, name) != getattr(type(self), name) and not getattr(data, column):
                raise UserError(f"--{name} needs --{column}")
