"""A user's own tables as a dataset: `run_classifier.py --task_name=tsv`."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.errors import Place, UserError, Where, counted, note, warn
from bert_tf.data.features import InputExample
from bert_tf.options.declare import value_for
from bert_tf.tables.columns import is_name, read_cells, to_text
from bert_tf.tables.read import read_table
from bert_tf.tables.texts import with_distinct_ids
from bert_tf.tasks.classification.datasets import SPLIT_NAMES, TextDataset, require_valid_labels
from bert_tf.tasks.classification.label_inference import LabelParser, infer_labels, unpack
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, REGRESSION, ClassifierOptions

# For each, the name of an option is that with _column.
_PURPOSES = ("text", "text_pair", "label", "id")


class CustomDataset(TextDataset):
    """A dataset in a user's table files.

    If there is a training file, its labels determine the model's outputs, so it is read first. With
    `--teacher_weight=1`, its labels are not read unless it also provides the dev set.

    Args:
        paths: split -> file, for the splits that exist. See `split_files.find_files`.
        options: options for tables.
        labels: names of the labels in the order of their ids; empty to infer them, or for numbers.
        problem_type: overrides that of the options. "auto" infers it from the training file;
            without one, it is "classification".

    Raises:
        UserError: the training file is invalid, or the labels are unknown.
    """

    name = "task tsv"

    def __init__(
        self,
        paths: Mapping[str, str],
        options: ClassifierOptions,
        labels: Sequence[str] = (),
        problem_type: str | None = None,
    ) -> None:
        self._paths, self._options = paths, options
        self.has_pairs = bool(options.text_pair_column)
        has_training_file_only = "eval" not in paths and "train" in paths
        self._holds_out_rows = has_training_file_only and bool(options.dev_fraction)
        self._examples: dict[str, list[InputExample]] = {}
        self.is_unlabeled = options.ignores_labels and not self._holds_out_rows
        labels, problem_type = tuple(labels), problem_type or options.problem_type
        require_valid_labels(labels, "--labels")
        unlabeled = {"predict", "train"} if self.is_unlabeled else {"predict"}
        if not options.label_column and not paths.keys() <= unlabeled:
            or_else = ", or --dev_fraction=0" * (options.ignores_labels and self._holds_out_rows)
            raise UserError(f"--do_train and --do_eval need --label_column{or_else}")
        separator, skipped = options.label_separator, options.skipped_labels
        self._parser = LabelParser(problem_type, labels, separator, skipped)
        if "train" in paths and not self.is_unlabeled:
            self._examples["train"] = self._load("train")
        elif not labels and problem_type != REGRESSION:
            raise UserError("There is no training file to take the labels from: pass --labels")
        elif problem_type == AUTO:
            self._parser = dataclasses.replace(self._parser, problem_type=CLASSIFICATION)
        self.problem_type, self.labels = self._parser.problem_type, self._parser.labels

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split, at least one; examples for prediction have no labels."""
        if split != "predict" and self._holds_out_rows and "eval" not in self._examples:
            self._hold_out_dev_set()
        if split not in self._examples:
            self._examples[split] = self._load(split)
            note(f"{counted(len(self._examples[split]), 'row')}", at=self._paths[split])
        return list(self._examples[split])

    def describe(self, split: str) -> str:
        """Returns the name of the split's file."""
        is_held_out = split == "eval" and self._holds_out_rows
        return str(Place(self._paths["train" if is_held_out else split]))

    def _load(self, split: str) -> list[InputExample]:
        """Reads the file of a split; if it is the training file, also infers the labels."""
        path, options, parser = self._paths[split], self._options, self._parser
        is_unlabeled = self.is_unlabeled and split == "train"
        unused = {"label"} if split == "predict" else {"id", "label"} if is_unlabeled else {"id"}
        given = {name: getattr(options, f"{name}_column") or "" for name in _PURPOSES}
        columns = {name: found for name, x in given.items() if (found := value_for(x, split))}
        used = {purpose: column for purpose, column in columns.items() if purpose not in unused}
        has_header = value_for(options.has_header, split)
        # The file has a header like the others', unless its text column is another one.
        if has_header == AUTO and columns["text"] == options.text_column:
            has_header = "yes" if any(map(is_name, columns.values())) else AUTO
        table = read_table(path, value_for(options.quoted, split), split=split)
        rows = list(read_cells(path, table, used, has_header, split))
        if "label" in used and parser.skipped:
            kept = [row for row in rows if not parser.is_skipped(row[1]["label"], row[0])]
            count = counted(len(rows) - len(kept), "row")
            note(f"{count} left out by --skip_labels={options.skip_labels}", at=path)
            rows = kept
        if not rows:
            raise UserError("the file has no rows", at=path)
        places = [place for place, _ in rows]
        values = {purpose: [cells[purpose] for _, cells in rows] for purpose in used}
        if "label" in values and parser.problem_type != CLASSIFICATION:
            values["label"] = list(map(unpack, values["label"]))
        if split == "train" and not is_unlabeled:
            self._parser = infer_labels(path, places, values["label"], parser)
        return self._to_examples(split, places, values)

    def _to_examples(
        self, split: str, places: Sequence[Where], values: Mapping[str, Sequence[Any]]
    ) -> list[InputExample]:
        guids = [f"{SPLIT_NAMES[split]}-{index}" for index in range(len(places))]
        if "id" in values:
            cells = zip(values["id"], places, strict=True)
            ids = ((place, to_text(value, "id", place), "") for value, place in cells)
            guids = [id_ for _, id_, _ in with_distinct_ids(ids)]
        labels = [self._parser.placeholder if split == "train" else None] * len(places)
        if "label" in values:
            labels = list(map(self._parser.parse, values["label"], places))
        texts = [
            [to_text(value, name, place) for value, place in zip(values[name], places, strict=True)]
            for name in ("text", "text_pair")
            if name in values
        ]
        rows = list(zip(places, guids, labels, *texts, strict=True))
        empty = [place for place, _, _, *row in rows if not all(map(str.strip, row))]
        if empty:
            warn(f"{counted(len(empty), 'row')} with an empty text", at=empty[0])
        return [InputExample(guid, *row, label=label) for _, guid, label, *row in rows]

    def _hold_out_dev_set(self) -> None:
        path, examples = self._paths["train"], self._examples["train"]
        dev_size = max(1, round(self._options.dev_fraction * len(examples)))
        row_count = counted(len(examples), "row")
        if dev_size >= len(examples):
            problem = f"{row_count} cannot be split into a training and a dev set"
            raise UserError(problem, at=path, fix="Pass --eval_file or --dev_fraction=0")
        train, held_out = _split(examples, dev_size, self.problem_type)
        self._examples |= {"train": train, "eval": held_out}
        kept = f"(--dev_fraction={self._options.dev_fraction:g}), {len(train):,} to train on"
        summary = f"{len(held_out):,} of the {row_count} of {path} are held out for evaluation"
        note(f"no dev set: {summary} {kept}")


def _split(
    examples: Sequence[InputExample], dev_size: int, problem_type: str
) -> list[list[InputExample]]:
    """Splits examples into a training and a dev set, stratified by class if possible."""
    # Imported lazily: it takes a second, and most runs have an evaluation file.
    from sklearn.model_selection import train_test_split

    # Stratification needs at least two rows of each class, and a row of each class on both sides.
    # Numbers and label sets repeat too rarely: count each row as a class, which disables it.
    labels = [example.label for example in examples]
    counts = Counter(labels if problem_type == CLASSIFICATION else range(len(labels)))
    stratify = min(counts.values()) > 1 and len(counts) <= min(dev_size, len(labels) - dev_size)
    settings = {"test_size": dev_size, "random_state": 0, "stratify": labels if stratify else None}
    parts = train_test_split(range(len(labels)), **settings)
    return [[examples[row] for row in sorted(part)] for part in parts]
