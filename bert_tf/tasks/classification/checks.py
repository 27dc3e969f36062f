"""What looks wrong in labels and texts, and makes training or evaluation useless."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.data.features import InputExample
from bert_tf.errors import counted, excerpt, shortened
from bert_tf.finetuning.run_checks import check_similar_labels
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.label_inference import is_placeholder
from bert_tf.tasks.classification.options import CLASSIFICATION, MULTILABEL, REGRESSION

# Tolerated fraction of training rows whose text also occurs with a different label.
_MAX_CONTRADICTORY = 0.1
_NUMBER = r"[+-]?[\d.,]*\d"


def check(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    train_examples: Sequence[InputExample],
) -> Iterator[str]:
    """Yields a sentence for each problem in a split; see `Task.check`."""
    path = data.describe(split)
    names = () if data.problem_type == REGRESSION else data.labels
    if not data.is_published:
        yield from _check_texts(path, names, examples)
    if split == "predict" or (split == "train" and data.is_unlabeled):
        return
    count, labels = len(examples), {str(example.label) for example in examples}
    if count > 1 and len(labels) == 1:
        label = repr(examples[0].label)
        yield f"{path}: all {count} rows have the label {label}. Check the label column"
    if split == "train":
        if data.problem_type == REGRESSION:
            return
        yield from check_similar_labels(names, path)
        yield from _check_labels(path, data)
        if not data.is_published:
            yield from _check_contradictions(path, examples)
    elif train_examples and names and not data.is_unlabeled:
        unseen = _collect_labels(examples) - _collect_labels(train_examples)
        if unseen:
            yield f"{path}: no row of the training set has the label {', '.join(sorted(unseen))}"


def _check_texts(
    path: str, labels: Sequence[str], examples: Sequence[InputExample]
) -> Iterator[str]:
    names = {label.casefold() for label in labels if not re.fullmatch(_NUMBER, label)}
    texts, second_texts = zip(*((e.text_a, e.text_b or "") for e in examples), strict=True)
    for kind, column, is_suspicious, tolerated in (
        ("numbers or dates", texts, re.compile(r"(?s)(?=.*\d)[\W\d_]+").fullmatch, 0.5),
        ("missing values", texts, re.compile("nan|null|none").fullmatch, 0.05),
        ("labels", texts, names.__contains__, 0.5),
        ("labels", second_texts, names.__contains__, 0.5),
    ):
        found = [text for text in column if is_suspicious(text.strip().casefold())]
        if len(found) > tolerated * len(examples):
            share = f"{len(found)} of {len(examples)} texts are {kind}, such as {found[0]!r}"
            yield f"{path}: {share}. Check the text column"


def _check_contradictions(path: str, examples: Sequence[InputExample]) -> Iterator[str]:
    texts = [(example.text_a.strip(), example.text_b) for example in examples]
    labels_of_text: dict[Any, set[Any]] = defaultdict(set)
    for text, example in zip(texts, examples, strict=True):
        labels_of_text[text].add(example.label)
    found = [text for text in texts if len(labels_of_text[text]) > 1]
    if len(found) > _MAX_CONTRADICTORY * len(texts):
        labels = shortened(sorted(map(str, labels_of_text[found[0]])))
        share = f"{counted(len(found), 'row', of=len(texts))} ({len(found) / len(texts):.1%})"
        problem = f"repeat a text with a different label, such as {excerpt(found[0][0])}: {labels}"
        yield f"{path}: {share} {problem}. Check the labels"


def _check_labels(path: str, data: TextDataset) -> Iterator[str]:
    with_comma = [label for label in data.labels if "," in label]
    parts = {part.strip() for label in data.labels for part in label.split(",")}
    if data.problem_type == CLASSIFICATION and 2 * len(with_comma) > len(data.labels) > len(parts):
        advice = "If it is a list, pass --problem_type=multilabel"
        yield f"{path}: {with_comma[0]!r} is read as one label. {advice}"
    # Of -1, 0 and 1, -1 is a class; of -1, 0, 1 and 2, it often means "no label".
    is_class = {"-1"} if "2" not in data.labels else set()
    missing = [label for label in data.labels if is_placeholder(label) and label not in is_class]
    # If these are more than half of all labels, they are names such as + and -, or emojis.
    if 0 < 2 * len(missing) <= len(data.labels):
        advice = "remove its rows (with --task_name=tsv, pass --skip_labels=" + (
            ",".join(missing) or ","
        )
        names = " and ".join(map(repr, missing))
        yield f"{path}: there is a label {names}. If it means no label, {advice})"
    for label in data.labels:
        is_list = label[0] == "[" and label[-1] == "]"
        if is_list or (data.problem_type == MULTILABEL and label[0] in "[]'\""):
            advice = "Write lists as a,b, with --problem_type=multilabel"
            yield f"{path}: the label {label!r} is (part of) a Python list. {advice}"
            return


def _collect_labels(examples: Sequence[InputExample]) -> set[str]:
    labels = (e.label if isinstance(e.label, tuple) else (e.label,) for e in examples)
    return set().union(*labels)
