"""Datasets of labeled texts."""

import abc
import types
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.errors import UserError
from bert_tf.data.features import InputExample
from bert_tf.tasks.classification.options import CLASSIFICATION

# Entry of `run.json` with the problem type, which may have been inferred.
PROBLEM_TYPE = "problem_type"
# Split -> its name in example ids and GLUE's file names, as in the original BERT code.
SPLIT_NAMES = {"train": "train", "eval": "dev", "predict": "test"}


class TextDataset(abc.ABC):
    """Texts or text pairs, in the splits "train", "eval" and "predict".

    Attributes:
        name: name in messages ("task cola").
        problem_type: `CLASSIFICATION`, `MULTILABEL` or `REGRESSION`.
        labels: names of the labels in the order of their ids; for regression, of several targets.
        is_published: whether `--task_name` determines labels and files, as for GLUE. If so,
            examples to predict have the first label as a placeholder, as in the original.
        primary_metric: default of `--best_metric`; None for the problem type's default.
        has_pairs: whether training examples have two texts; None if unknown, or some have.
        submission: file name of the predictions for gluebenchmark.com; None for other tasks.
        entries: entries for `run.json`.
        is_unlabeled: whether training needs no labels (distillation), and uses placeholders.
    """

    name: str
    problem_type: str = CLASSIFICATION
    labels: Sequence[str] = ()
    is_published: bool = False
    primary_metric: str | None = None
    has_pairs: bool | None = None
    submission: str | None = None
    entries: Mapping[str, str] = types.MappingProxyType({})
    is_unlabeled: bool = False

    @abc.abstractmethod
    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split, in the order of the file; may be empty."""

    @abc.abstractmethod
    def describe(self, split: str) -> str:
        """Returns the origin of a split, such as the path of its file, for messages."""


def require_valid_labels(labels: Sequence[Any], source: str) -> None:
    """Raises a UserError unless labels are distinct lines of text, as in `labels.txt`.

    `source` says where they come from, for the message.
    """
    known: set[Any] = set()
    for number, label in enumerate(labels, start=1):
        is_line = isinstance(label, str) and label.strip() and len(label.splitlines()) == 1
        if not is_line or label in known:
            problem = f"label {number} is a duplicate, or not one line of text: {label!r:.100}"
            raise UserError(problem, at=source)
        known.add(label)
