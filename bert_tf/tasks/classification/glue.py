"""GLUE and XNLI, published datasets in TSV files. To add one, add a `TsvTask` to `TASKS`."""

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from bert_tf.base.errors import UserError, counted, excerpt, warn
from bert_tf.data.features import InputExample
from bert_tf.tables.columns import parse_number
from bert_tf.tables.read import LAST, Row, read_tsv
from bert_tf.tasks.classification.datasets import SPLIT_NAMES, TextDataset
from bert_tf.tasks.classification.options import CLASSIFICATION, REGRESSION


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """The file of a split, and which of its columns to read. Columns are numbered from 0.

    Attributes:
        file: path relative to `data_dir`.
        has_header: whether the first line has column names.
        text_a: column of the text.
        text_b: column of the second text; None for single texts.
        label: column of the label, or `LAST`; None for a test set without labels, whose examples
            get the first label of the task as a placeholder.
        guid_prefix: start of the ids of the examples: `<guid_prefix>-<number>`.
        guid_column: column with the number; None to use the 0-based line number instead.
        where: (column, value): rows with a different value are skipped.
        spellings: pairs (label in the file, label of the task), for labels that differ.
        text_names: column names of the texts, to check the header.
    """

    file: str
    has_header: bool = True
    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid_prefix: str
    guid_column: int | None = None
    where: tuple[int, str] | None = None
    spellings: tuple[tuple[str, str], ...] = ()
    text_names: tuple[str, ...] = ("sentence1", "sentence2")


@dataclasses.dataclass(frozen=True)
class TsvTask:
    """A dataset in TSV files.

    Attributes:
        name: the value of `--task_name`.
        labels: names of the labels in the order of their ids; empty if labels are numbers (STS-B).
        splits: maps "train", "dev" and "test" to their files; splits may be missing.
        submission: file name of the predictions for gluebenchmark.com; None if it takes none.
        primary_metric: the metric that the benchmark reports, without `eval_`; None for accuracy,
            or Pearson's correlation if labels are numbers.
    """

    name: str
    labels: tuple[str, ...]
    splits: Mapping[str, Split]
    submission: str | None = None
    primary_metric: str | None = None


_NLI_LABELS = ("contradiction", "entailment", "neutral")
_ENTAILMENT_LABELS = ("entailment", "not_entailment")
_SPLITS = ("train", "dev", "test")


def _make_splits(
    texts: tuple[int, ...],
    test_texts: tuple[int, ...] | None = None,
    *,
    label: int = LAST,
    id_splits: Collection[str] = (),
    header_splits: Collection[str] = _SPLITS,
    text_names: tuple[str, ...] = ("sentence1", "sentence2"),
) -> dict[str, Split]:
    """Creates the splits of a GLUE dataset from the columns of its texts and its label.

    The test set has no labels; `test_texts` are its text columns if they differ. The first column
    of `id_splits` has ids.
    """
    splits = {}
    for name in _SPLITS:
        text_a, *text_b = test_texts if test_texts and name == "test" else texts
        splits[name] = Split(
            file=f"{name}.tsv",
            has_header=name in header_splits,
            text_a=text_a,
            text_b=text_b[0] if text_b else None,
            label=None if name == "test" else label,
            guid_prefix=name,
            guid_column=0 if name in id_splits else None,
            text_names=text_names,
        )
    return splits


def _make_mnli_splits(kind: str) -> dict[str, Split]:
    splits = _make_splits((8, 9), id_splits=_SPLITS)
    dev = dataclasses.replace(splits["dev"], file=f"dev_{kind}.tsv", guid_prefix=f"dev_{kind}")
    test = dataclasses.replace(splits["test"], file=f"test_{kind}.tsv")
    return {**splits, "dev": dev, "test": test}


_PAIRS = _make_splits((1, 2), id_splits=_SPLITS)
# The diagnostic set, for models trained on MNLI.
_AX = {"test": dataclasses.replace(_PAIRS["test"], file="diagnostic.tsv")}
_XNLI = {
    "train": Split(
        file="multinli/multinli.train.zh.tsv",
        text_a=0,
        text_b=1,
        label=2,
        guid_prefix="train",
        spellings=(("contradictory", "contradiction"),),
        text_names=("premise", "hypo"),
    ),
    "dev": Split(
        file="xnli.dev.tsv", text_a=6, text_b=7, label=1, guid_prefix="dev", where=(0, "zh")
    ),
}
_COLA = _make_splits((3,), (1,), label=1, header_splits=["test"], text_names=("sentence",))
_QNLI = _make_splits((1, 2), id_splits=_SPLITS, text_names=("question", "sentence"))
_QQP = _make_splits((3, 4), (1, 2), id_splits=_SPLITS, text_names=("question1", "question2"))
_MRPC = _make_splits((3, 4), label=0, text_names=("#1 String", "#2 String"))
_SST_2 = _make_splits((0,), (1,), id_splits=["test"], text_names=("sentence",))
# CoLA, MNLI, MRPC and XNLI have the columns, guids and labels of the original BERT release. Labels
# of QNLI and RTE are in alphabetical order, like MNLI's.
TASKS: dict[str, TsvTask] = {
    task.name: task
    for task in (
        TsvTask("ax", _NLI_LABELS, _AX, "AX.tsv"),
        TsvTask("cola", ("0", "1"), _COLA, "CoLA.tsv", "matthews"),
        TsvTask("mnli", _NLI_LABELS, _make_mnli_splits("matched"), "MNLI-m.tsv"),
        TsvTask("mnli-mm", _NLI_LABELS, _make_mnli_splits("mismatched"), "MNLI-mm.tsv"),
        TsvTask("mrpc", ("0", "1"), _MRPC, "MRPC.tsv"),
        TsvTask("qnli", _ENTAILMENT_LABELS, _QNLI, "QNLI.tsv"),
        TsvTask("qqp", ("0", "1"), _QQP, "QQP.tsv"),
        TsvTask("rte", _ENTAILMENT_LABELS, _PAIRS, "RTE.tsv"),
        TsvTask("sst-2", ("0", "1"), _SST_2, "SST-2.tsv"),
        TsvTask("sts-b", (), _make_splits((7, 8), id_splits=_SPLITS), "STS-B.tsv"),
        TsvTask("wnli", ("0", "1"), _PAIRS, "WNLI.tsv"),
        TsvTask("xnli", _NLI_LABELS, _XNLI),
    )
}


def task_named(name: str) -> TsvTask:
    """Returns the task with the given name, ignoring case."""
    if name.lower() in TASKS:
        return TASKS[name.lower()]
    known = ", ".join(["tsv (your own files)", *TASKS])
    raise UserError(f"--task_name must be one of {known}. Received: {name!r}")


class GlueDataset(TextDataset):
    """A dataset of `TASKS`, read from the folder `data_dir`."""

    is_published = True

    def __init__(self, task: TsvTask, data_dir: str) -> None:
        self.task, self.data_dir = task, data_dir
        self.name = f"task {task.name}"
        self.labels = task.labels
        self.submission = task.submission
        self.primary_metric = task.primary_metric
        self.has_pairs = any(split.text_b is not None for split in task.splits.values())
        self.problem_type = CLASSIFICATION if task.labels else REGRESSION

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split; none if the file has no rows, as in the original."""
        name = SPLIT_NAMES[split]
        if name not in self.task.splits:
            existing = ", ".join(self.task.splits)
            raise UserError(f"Task {self.task.name} has no {name} set, only {existing}")
        return list(examples(self.task, self.task.splits[name], read_tsv(self.describe(split))))

    def describe(self, split: str) -> str:
        """Returns the path of the split's file."""
        return os.path.join(self.data_dir, self.task.splits[SPLIT_NAMES[split]].file)


def examples(task: TsvTask, split: Split, rows: Iterable[Row]) -> Iterator[InputExample]:
    """Yields the examples in the rows of a file."""
    columns = {
        "id": split.guid_column,
        "label": split.label,
        "text" if split.text_b is None else "first text": split.text_a,
        "second text": split.text_b,
    }
    needed = {purpose: column for purpose, column in columns.items() if column is not None}
    for index, row in enumerate(rows):
        if split.has_header and index == 0:
            _check_header(task, split, row)
            continue
        if split.where and row.cells[split.where[0] :][:1] != [split.where[1]]:
            continue
        _require_columns(row, needed, task.name)
        number = index if split.guid_column is None else row.cells[split.guid_column]
        yield InputExample(
            guid=f"{split.guid_prefix}-{number}",
            text_a=row.cells[split.text_a],
            text_b=None if split.text_b is None else row.cells[split.text_b],
            label=_parse_label(task, split, row),
        )


def _require_columns(row: Row, columns: Mapping[str, int], task: str) -> None:
    needed = max(0, *columns.values()) + 1
    if len(row.cells) < needed:
        numbers = (f"{name}: {'last' if n == LAST else n + 1}" for name, n in columns.items())
        expected = f"{counted(needed, 'column')}, separated by tabs ({', '.join(numbers)})"
        received = excerpt("\t".join(row.cells))
        problem = f"task {task} needs {expected}. Received {len(row.cells)}: {received}"
        raise UserError(problem, at=row.place, fix="For your own files, pass --task_name=tsv")


def _check_header(task: TsvTask, split: Split, row: Row) -> None:
    header = [cell.strip().casefold() for cell in row.cells]
    for name, column in zip(split.text_names, (split.text_a, split.text_b), strict=False):
        if column is not None and header and header[column : column + 1] != [name.casefold()]:
            received = excerpt(", ".join(row.cells))
            expected = f"expected a header with {name!r} as column {column + 1} ({task.name})"
            warn(f"{expected}. Received: {received}", at=row.place)
            return


def _parse_label(task: TsvTask, split: Split, row: Row) -> str:
    if split.label is None:
        return task.labels[0] if task.labels else "0"
    written: str = row.cells[split.label]
    label: str = dict(split.spellings).get(written, written)
    if label in task.labels or (not task.labels and parse_number(label) is not None):
        return label
    allowed = f"one of {', '.join(task.labels)}" if task.labels else "a number"
    problem = f"label {written!r} of task {task.name} is not {allowed}"
    raise UserError(problem, at=row.place, fix="For your own files, pass --task_name=tsv")
