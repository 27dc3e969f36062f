"""Datasets of labeled texts, and warnings about their splits."""

import abc
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.data.cell_values import excerpt
from bert_tf.data.features import InputExample
from bert_tf.errors import shortened
from bert_tf.tasks.classification import glue

_logger = logging.getLogger(__name__)

CLASSIFICATION = "classification"
MULTILABEL = "multilabel"
REGRESSION = "regression"
# Tolerated fraction of evaluation rows whose text is also in the training set.
_MAX_SHARED = 0.01
# Tolerated fraction of training rows whose text also occurs with a different label; tolerated
# distance of evaluation labels from the range of training labels, as a multiple of that range.
_MAX_CONTRADICTORY, _MAX_DISTANCE = 0.1, 10

# Suspicious texts, with their tolerated fraction and what to check.
_ODD_TEXTS = (
    ("numbers", r"[+-]?[\d.,]*\d", 0.5, "text column"),
    ("missing values", "nan|null|none", 0.05, "text column"),
    # UTF-8 that was read as Latin-1 or Windows-1252, such as "cafÃ©".
    ("garbled", "(?s).*(ã[©¨¤¶¼§±¡³º]|â€).*", 0.01, "encoding of the file, which must be UTF-8"),
)

# Split -> its name in ids and in GLUE, as in the original.
SPLIT_NAMES = {"train": "train", "eval": "dev", "predict": "test"}


class TextDataset(abc.ABC):
    """Texts or text pairs, in the splits "train", "eval" and "predict".

    Attributes:
        name: for messages ("task cola").
        problem_type: `CLASSIFICATION`, `MULTILABEL` or `REGRESSION`.
        labels: in the order of their ids; empty for regression.
        is_published: whether the name determines labels and files, as for GLUE. If so, examples to
            predict have the first label as a placeholder, as in the original; otherwise none.
        primary_metric: its name without `eval_`; None for the problem type's default.
        has_pairs: whether examples have two texts; None if unknown.
        submission: file name of the predictions for GLUE's server.
        holds_out: whether the evaluation rows are held out of the training file.
        is_unlabeled: whether training ignores labels, so that examples have placeholders.
    """

    name: str
    problem_type: str = CLASSIFICATION
    labels: Sequence[str] = ()
    is_published: bool = False
    primary_metric: str | None = None
    has_pairs: bool | None = None
    submission: str | None = None
    holds_out: bool = False
    is_unlabeled: bool = False

    @abc.abstractmethod
    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split, in the order of the file; may be empty."""

    @abc.abstractmethod
    def describe(self, split: str) -> str:
        """Returns the origin of a split, such as the path of its file, for messages."""


class GlueDataset(TextDataset):
    """A dataset of `glue.TASKS` in a folder."""

    is_published = True

    def __init__(self, task: glue.TsvTask, data_dir: str) -> None:
        self.task, self.data_dir = task, data_dir
        self.name = f"task {task.name}"
        self.labels = task.labels
        self.submission = task.submission
        self.primary_metric = task.primary_metric
        self.has_pairs = any(split.text_b is not None for split in task.splits.values())
        self.problem_type = CLASSIFICATION if task.labels else REGRESSION

    def read(self, split: str) -> list[InputExample]:
        """See `glue.read_examples`."""
        return glue.read_examples(self.task, SPLIT_NAMES[split], self.data_dir)

    def describe(self, split: str) -> str:
        """Returns the path of the split's file."""
        return os.path.join(self.data_dir, self.task.splits[SPLIT_NAMES[split]].file)


def check_split(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    training: Sequence[InputExample],
) -> None:
    """Warns about labels and texts that make a training run or an evaluation useless.

    `training` is empty if the training set has not been read.
    """
    path, count = data.describe(split), len(examples)
    for kind, pattern, share, suspect in () if data.is_published else _ODD_TEXTS:
        odd = [e.text_a for e in examples if re.fullmatch(pattern, e.text_a.strip().casefold())]
        if len(odd) > share * count:
            message = "%s: %d of %d texts are %s, such as %r. Check the %s"
            _logger.warning(message, path, len(odd), count, kind, odd[0], suspect)
    if split == "predict" or (split == "train" and data.is_unlabeled):
        return
    if count > 1 and all(example.label == examples[0].label for example in examples):
        message = "%s: all %d rows have the label %r. Check the label column"
        _logger.warning(message, path, count, examples[0].label)
    if split == "train":
        folded = ["".join(label.split()).casefold() for label in data.labels]
        alike = [x for x, y in zip(data.labels, folded, strict=True) if folded.count(y) > 1]
        if alike:
            message = "%s: labels that differ only in case or white space: %s"
            _logger.warning(message, path, ", ".join(map(repr, alike)))
        for odd, message in _find_odd_labels(data):
            _logger.warning(f"%s: {message}", path, odd)
        if not data.is_published and data.problem_type != REGRESSION:
            _check_contradictions(path, examples)
    elif training:
        if data.problem_type == REGRESSION and not data.is_unlabeled:
            _check_range(path, *([float(str(e.label)) for e in x] for x in (examples, training)))
        unseen = _collect_labels(examples) - _collect_labels(training)
        if unseen and data.labels and not data.is_unlabeled:
            message = "%s: no row of the training set has the label %s"
            _logger.warning(message, path, ", ".join(sorted(unseen)))
        known = {(example.text_a.strip(), example.text_b) for example in training}
        shared = sum((example.text_a.strip(), example.text_b) in known for example in examples)
        if shared > _MAX_SHARED * count:
            # The user cannot change a published dataset; rows held out come from the same file.
            is_unavoidable = data.is_published or data.holds_out
            level = logging.INFO if is_unavoidable else logging.WARNING
            message = "%s: %d of %d rows to evaluate on (%.1f%%) have the text of a training row"
            _logger.log(level, message, path, shared, count, 100 * shared / count)


def _check_contradictions(path: str, examples: Sequence[InputExample]) -> None:
    texts = [(example.text_a.strip(), example.text_b) for example in examples]
    labels: dict[Any, set[Any]] = {text: set() for text in texts}
    for text, example in zip(texts, examples, strict=True):
        labels[text].add(example.label)
    odd = [text for text in texts if len(labels[text]) > 1]
    if len(odd) > _MAX_CONTRADICTORY * len(texts):
        example_labels = shortened(sorted(map(str, labels[odd[0]])))
        message = "%s: %d of %d rows (%.1f%%) have texts with different labels, such as %s: %s"
        values = len(odd), len(texts), 100 * len(odd) / len(texts), excerpt(odd[0][0])
        _logger.warning(f"{message}. Check the labels", path, *values, example_labels)


def _check_range(path: str, numbers: Sequence[float], known: Sequence[float]) -> None:
    low, high = min(known), max(known)
    far = [n for n in numbers if max(low - n, n - high) > _MAX_DISTANCE * (high - low) > 0]
    if far:
        message = "%s: %d of %d labels, such as %g, are far outside of %g to %g in training"
        values = len(far), len(numbers), far[0], low, high
        _logger.warning(f"{message}. Check their scale", path, *values)


def _find_odd_labels(data: TextDataset) -> Iterator[tuple[str, str]]:
    """Yields labels that were probably misread, each with a message."""
    with_comma = [label for label in data.labels if "," in label]
    parts = {part.strip() for label in data.labels for part in label.split(",")}
    if data.problem_type == CLASSIFICATION and 2 * len(with_comma) > len(data.labels) > len(parts):
        yield with_comma[0], "%r is one label. If it is several, pass --problem_type=multilabel"
    for label in data.labels:
        if label.casefold() in ("nan", "null"):
            yield label, "there is a label %r. If it stands for a missing one, remove its rows"
        if data.problem_type == MULTILABEL and label[0] in "[]'\"":
            yield label, "there is a label %r, part of a Python list. Write the labels as a,b"
            return


def _collect_labels(examples: Sequence[InputExample]) -> set[str]:
    labels = (example.label or () for example in examples)
    return {name for label in labels for name in ((label,) if isinstance(label, str) else label)}
