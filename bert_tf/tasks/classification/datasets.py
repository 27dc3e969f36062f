"""Datasets of labeled texts, and warnings about their splits."""

import abc
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.data.cell_values import excerpt
from bert_tf.data.features import InputExample
from bert_tf.errors import shortened
from bert_tf.finetuning import run_checks
from bert_tf.progress import log
from bert_tf.tasks.classification.options import CLASSIFICATION, MULTILABEL, REGRESSION

# Tolerated fraction of training rows whose text also occurs with a different label.
_MAX_CONTRADICTORY = 0.1
# Tolerated distance of evaluation labels from the range of training labels, in widths of the range.
_MAX_DISTANCE = 10
_NUMBER = r"[+-]?[\d.,]*\d"
# Between the labels of a cell with several labels.
_SEPARATOR = re.compile(r"\s*[,;|]\s*")
# Suspicious texts: (kind, pattern, tolerated fraction).
_SUSPICIOUS_TEXTS = (
    ("numbers or dates", r"(?s)(?=.*\d)[\W\d_]+", 0.5),
    ("missing values", "nan|null|none", 0.05),
)

# Split -> its name in example ids and GLUE's file names, as in the original BERT code.
SPLIT_NAMES = {"train": "train", "eval": "dev", "predict": "test"}


class TextDataset(abc.ABC):
    """Texts or text pairs, in the splits "train", "eval" and "predict".

    Attributes:
        name: name in messages ("task cola").
        problem_type: `CLASSIFICATION`, `MULTILABEL` or `REGRESSION`.
        labels: names of the labels in the order of their ids; empty for regression.
        is_published: whether `--task_name` determines labels and files, as for GLUE. If so,
            examples to predict have the first label as a placeholder, as in the original.
        primary_metric: default of `--best_metric`; None for the problem type's default.
        has_pairs: whether examples have two texts; None if unknown.
        submission: file name of the predictions for gluebenchmark.com; None for other tasks.
        run_entries: entries for `run.json`, complete once the training set has been read.
        is_unlabeled: whether training needs no labels (distillation), and uses placeholders.
    """

    name: str
    problem_type: str = CLASSIFICATION
    labels: Sequence[str] = ()
    is_published: bool = False
    primary_metric: str | None = None
    has_pairs: bool | None = None
    submission: str | None = None
    run_entries: Mapping[str, str] = types.MappingProxyType({})
    is_unlabeled: bool = False

    @abc.abstractmethod
    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split, in the order of the file; may be empty."""

    @abc.abstractmethod
    def describe(self, split: str) -> str:
        """Returns the origin of a split, such as the path of its file, for messages."""


def check_split(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    training: Sequence[InputExample],
) -> None:
    """Warns about labels and texts of a split that make training or evaluation useless.

    `training` are the training examples; empty if they have not been read.
    """
    path, count = data.describe(split), len(examples)
    for kind, pattern, tolerated in () if data.is_published else _SUSPICIOUS_TEXTS:
        found = [e.text_a for e in examples if re.fullmatch(pattern, e.text_a.strip().casefold())]
        if len(found) > tolerated * count:
            message = "%s: %d of %d texts are %s, such as %r. Check the text column"
            log.warning(message, path, len(found), count, kind, found[0])
    labels = {label.casefold() for label in data.labels if not re.fullmatch(_NUMBER, label)}
    for texts in ([e.text_a for e in examples], [e.text_b or "" for e in examples]):
        found = [text for text in texts if text.strip().casefold() in labels]
        if len(found) > count / 2 and not data.is_published:
            message = "%s: %d of %d texts are labels, such as %r. Check the text column"
            log.warning(message, path, len(found), count, found[0])
    if split == "predict" or (split == "train" and data.is_unlabeled):
        return
    if count > 1 and all(example.label == examples[0].label for example in examples):
        message = "%s: all %d rows have the label %r. Check the label column"
        log.warning(message, path, count, examples[0].label)
    if split == "train":
        run_checks.warn_about_similar(data.labels, path)
        for label, message in _find_suspicious_labels(data):
            log.warning(f"%s: {message}", path, label)
        if not data.is_published and data.problem_type != REGRESSION:
            _check_contradictions(path, examples)
    elif training:
        if data.problem_type == REGRESSION and not data.is_unlabeled:
            numbers = [float(str(example.label)) for example in examples]
            _check_range(path, numbers, [float(str(example.label)) for example in training])
        unseen = _collect_labels(examples) - _collect_labels(training)
        if unseen and data.labels and not data.is_unlabeled:
            message = "%s: no row of the training set has the label %s"
            log.warning(message, path, ", ".join(sorted(unseen)))


def _check_contradictions(path: str, examples: Sequence[InputExample]) -> None:
    texts = [(example.text_a.strip(), example.text_b) for example in examples]
    labels_of_text: dict[Any, set[Any]] = {text: set() for text in texts}
    for text, example in zip(texts, examples, strict=True):
        labels_of_text[text].add(example.label)
    found = [text for text in texts if len(labels_of_text[text]) > 1]
    if len(found) > _MAX_CONTRADICTORY * len(texts):
        labels = shortened(sorted(map(str, labels_of_text[found[0]])))
        message = "%s: %d of %d rows (%.1f%%) repeat a text with a different label, such as %s: %s"
        values = len(found), len(texts), 100 * len(found) / len(texts), excerpt(found[0][0])
        log.warning(f"{message}. Check the labels", path, *values, labels)


def _check_range(path: str, numbers: Sequence[float], training: Sequence[float]) -> None:
    low, high = min(training), max(training)
    far = [n for n in numbers if max(low - n, n - high) > _MAX_DISTANCE * (high - low) > 0]
    if far:
        message = "%s: %d of %d labels, such as %g, are far outside the training range, %g to %g"
        values = len(far), len(numbers), far[0], low, high
        log.warning(f"{message}. Check their scale", path, *values)


def _find_suspicious_labels(data: TextDataset) -> Iterator[tuple[str, str]]:
    """Yields labels that were probably misread, each with a message template for it."""
    with_comma = [label for label in data.labels if "," in label]
    parts = {part.strip() for label in data.labels for part in label.split(",")}
    if data.problem_type == CLASSIFICATION and 2 * len(with_comma) > len(data.labels) > len(parts):
        message = "%r is read as one label. If it is a list, pass --problem_type=multilabel"
        yield with_comma[0], message
    names_in = {label: {*_SEPARATOR.split(label)} for label in data.labels}
    joined = [x for x, names in names_in.items() if len(names) > 1 and names <= names_in.keys()]
    if joined and data.problem_type == CLASSIFICATION:
        message = "the label %r consists of other labels. If texts have several labels, pass "
        yield joined[0], f"{message}--problem_type=multilabel"
    for label in data.labels:
        if label.casefold() in ("nan", "null"):
            yield label, "there is a label %r. If it means a missing label, remove its rows"
        if data.problem_type == MULTILABEL and label[0] in "[]'\"":
            yield label, "there is a label %r, part of a Python list. Write lists as a,b"
            return


def _collect_labels(examples: Sequence[InputExample]) -> set[str]:
    labels = (example.label or () for example in examples)
    return {name for label in labels for name in ((label,) if isinstance(label, str) else label)}
