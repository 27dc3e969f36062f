"""A user's own tables as a dataset: `run_classifier.py --task_name=tsv`."""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, note, warn
from bert_tf.data.features import InputExample
from bert_tf.options.declare import value_for
from bert_tf.tables.columns import cell, find_positions, is_name, num_numbers, positions_in, to_text
from bert_tf.tables.read import Row, read_table
from bert_tf.tasks.classification import column_mapping
from bert_tf.tasks.classification.datasets import SPLIT_NAMES, TextDataset, require_valid_labels
from bert_tf.tasks.classification.label_inference import LabelParser, infer_labels, unpack_numbers
from bert_tf.tasks.classification.options import AUTO, CLASSIFICATION, REGRESSION, ClassifierOptions

# Entry of `run.json` with the column names in the training file, separated by tabs.
HEADER = "header"
# Entry with `TrainingTable.num_columns`.
NUM_COLUMNS = "num_columns"


class CustomDataset(TextDataset):
    """A dataset in a user's table files.

    If there is a training file, its labels determine the model's outputs, so it is read first. With
    `--teacher_weight=1`, its labels are not read unless it also provides the dev set.

    Args:
        paths: split -> file, for the splits that exist. See `split_files.find_files`.
        options: options for tables.
        labels: names of the labels in the order of their ids; empty to infer them, or for numbers.
        training: what is known about the training file of an earlier run.
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
        training: column_mapping.TrainingTable | None = None,
        problem_type: str | None = None,
    ) -> None:
        self._paths, self._options = paths, options
        self.has_pairs = bool(options.text_pair_column)
        has_training_file_only = "eval" not in paths and "train" in paths
        self._holds_out_rows = has_training_file_only and bool(options.dev_fraction)
        self._examples: dict[str, list[InputExample]] = {}
        self._training = training or column_mapping.TrainingTable()
        self.is_unlabeled = options.ignores_labels and not self._holds_out_rows
        labels, problem_type = tuple(labels), problem_type or options.problem_type
        if problem_type == REGRESSION and labels and (options.labels or training is None):
            raise UserError("--problem_type=regression uses numbers, not labels: omit --labels")
        require_valid_labels(labels, "--labels")
        unlabeled = {"predict", "train"} if self.is_unlabeled else {"predict"}
        if not options.label_column and not paths.keys() <= unlabeled:
            problem = "--do_train and --do_eval need --label_column"
            if options.ignores_labels and self._holds_out_rows:
                problem += ", or --dev_fraction=0: rows are held out for evaluation"
            raise UserError(problem)
        if not options.label_separator:
            raise UserError("--label_separator must not be empty")
        separator, skipped = options.label_separator, options.skipped_labels
        self._parser = LabelParser(problem_type, labels, separator, skipped)
        if "train" in paths and not self.is_unlabeled:
            self._examples["train"] = self._load("train")
        elif not labels and problem_type != REGRESSION:
            raise UserError("There is no training file to take the labels from: pass --labels")
        elif problem_type == AUTO:
            self._parser = dataclasses.replace(self._parser, problem_type=CLASSIFICATION)
        self.problem_type, self.labels = self._parser.problem_type, self._parser.labels
        if "train" in paths and self.is_unlabeled:
            self._examples["train"] = self._load("train")

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
        return str(
            Place(self._paths["train" if split == "eval" and self._holds_out_rows else split])
        )

    def _load(self, split: str) -> list[InputExample]:
        """Reads the file of a split; if it is the training file, also infers the labels."""
        path = self._paths[split]
        is_unlabeled = self.is_unlabeled and split == "train"
        unused = {"label"} if split == "predict" else {"id", "label"} if is_unlabeled else {"id"}
        columns = column_mapping.columns_of_split(self._options, split, unused)
        quoted = value_for(self._options.quoted, split)
        rows = list(read_table(path, quoted, num_used=num_numbers(columns.values())))
        if not rows:
            raise UserError(f"{path} is empty")
        table = self._options, split, columns
        header = column_mapping.find_header(path, rows, *table, self._parser, self._training.header)
        positions = find_positions(path, rows[0], columns, header, split)
        column_mapping.warn_about_columns(rows, *table, header, self._training)
        self._training = self._training._replace(text_columns={})  # to warn once
        if header:
            del rows[0]
        if not rows:
            raise UserError(f"{path} has column names, but no rows below them")
        if "label" in positions and self._parser.skipped:
            rows = self._skip_rows(path, rows, positions["label"])
        places = [row.place for row in rows]
        values = {
            purpose: [cell(row, purpose, position) for row in rows]
            for purpose, position in positions.items()
        }
        if "label" in values and self._parser.problem_type != CLASSIFICATION:
            values["label"] = list(map(unpack_numbers, values["label"]))
        is_json = isinstance(rows[0].cells, dict)
        if quoted == AUTO and not (is_json or re.search(r"\.csv(\.gz)?$", path)):
            _warn_about_quotes(path, values)
        if split == "train":
            label_at = positions_in(positions.get("label"))
            is_shifted = "label" in positions and label_at[0] < positions["text"]
            width = len(rows[0].cells) if is_shifted and not is_name(columns["text"]) else 0
            self._training = column_mapping.TrainingTable(header, width)
            self.entries = {HEADER: "\t".join(header), NUM_COLUMNS: str(width)}
        if split == "train" and not is_unlabeled:
            self._parser = infer_labels(path, places, values["label"], self._parser)
        return self._to_examples(split, places, values)

    def _skip_rows(self, path: str, rows: Sequence[Row], position: Any) -> list[Row]:
        kept = [r for r in rows if not self._parser.is_skipped(cell(r, "label", position), r.place)]
        count = counted(len(rows) - len(kept), "row")
        note(f"{count} left out by --skip_labels={self._options.skip_labels}", at=path)
        if not kept:
            raise UserError(f"--skip_labels={self._options.skip_labels} leaves no row", at=path)
        return kept

    def _to_examples(
        self, split: str, places: Sequence[Where], values: Mapping[str, Sequence[Any]]
    ) -> list[InputExample]:
        guids = [f"{SPLIT_NAMES[split]}-{index}" for index in range(len(places))]
        if "id" in values:
            guids = _read_ids(values["id"], places)
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
            warn(
                f"{counted(len(empty), 'row')} with an empty text, the first at {empty[0]}",
                at=self._paths[split],
            )
        return [InputExample(guid, *row, label=label) for _, guid, label, *row in rows]

    def _hold_out_dev_set(self) -> None:
        path, examples = self._paths["train"], self._examples["train"]
        dev_size = max(1, round(self._options.dev_fraction * len(examples)))
        row_count = counted(len(examples), "row")
        if dev_size >= len(examples):
            problem = f"{path} has only {row_count}, too few to hold out a dev set"
            raise UserError(problem, fix="Pass --eval_file or --dev_fraction=0")
        train, held_out = _split(examples, dev_size, self.problem_type)
        self._examples |= {"train": train, "eval": held_out}
        summary = f"{len(held_out):,} of the {row_count} of {path} are held out for evaluation"
        note(
            f"no dev set: {summary} (--dev_fraction={self._options.dev_fraction:g}), "
            f"{len(train):,} to train on"
        )


def _warn_about_quotes(path: str, values: Mapping[str, Sequence[Any]]) -> None:
    for purpose, cells in values.items():
        stripped = [str(value).strip() for value in cells]
        all_quoted = len(cells) > 1 and all(re.fullmatch('".*"', text) for text in stripped)
        # A quoted text of several lines was split into rows.
        unpaired = [text for text in stripped if text.count('"') % 2]
        is_split = any(a[0] == '"' and b[-1] == '"' for a, b in pairwise(unpaired))
        if all_quoted or is_split:
            warn(
                f"quotes around a {purpose} are kept",
                at=path,
                fix="Pass --quoted=yes to remove them",
            )
            return


def _read_ids(values: Sequence[Any], places: Sequence[Where]) -> list[str]:
    place_of_id: dict[str, Where] = {}
    for value, place in zip(values, places, strict=True):
        id_ = to_text(value, "id", place)
        if place_of_id.setdefault(id_, place) != place:
            duplicate = f"{place}: duplicate id {excerpt(id_)}, also at {place_of_id[id_]}"
            raise UserError(duplicate, fix="Make ids unique, or omit --id_column")
    return list(place_of_id)


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
