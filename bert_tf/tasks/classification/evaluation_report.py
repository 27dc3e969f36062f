"""The report of an evaluation of classes, multi-label classes or numbers.

Shapes: E examples, L labels or targets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.evaluation import Column, Counts, EvaluationReport
from bert_tf.tasks.classification.metrics import THRESHOLD
from bert_tf.tasks.classification.problem_types import ProblemType


def make_report(
    problem: ProblemType,
    rows: Sequence[Sequence[Any]],
    values: np.ndarray,
    label_ids: np.ndarray,
    losses: np.ndarray | None,
) -> EvaluationReport:
    """Compares predictions with labels.

    Args:
        problem: the problem type.
        rows: the header and the rows of a table of predictions.
        values: probabilities [E, L], or numbers [E] or [E, L].
        label_ids: as `ProblemType.label_ids` returns them.
        losses: losses [E], if they are known.
    """
    header = ["prediction" if name == problem.answer_column else name for name in rows[0]]
    columns: dict[str, Column] = dict(zip(header, zip(*rows[1:], strict=True), strict=True))
    texts = {name: columns.pop(name) for name in ("id", "text", "text_pair") if name in columns}
    make = {"classes": _of_classes, "labels": _of_indicators, "number": _of_numbers}
    labels, parts = make[problem.soft_target](problem, values, label_ids)
    return EvaluationReport(
        columns={**texts, **labels, **columns}, losses=losses, labels=problem.labels, **parts
    )


# The columns of the labels, and more arguments of an `EvaluationReport`.
_Parts = tuple[Mapping[str, Column], dict[str, Any]]


def _of_classes(problem: ProblemType, values: np.ndarray, label_ids: np.ndarray) -> _Parts:
    predicted = values.argmax(axis=-1)
    right = predicted == label_ids
    return {"label": [problem.labels[label_id] for label_id in label_ids]}, {
        "is_wrong": ~right,
        "counts": Counts.of_classes(label_ids, predicted, np.arange(len(values))),
        "positive": 1 if len(problem.labels) == 2 else None,
        "confusion": (label_ids, predicted),
        "confidence": (values.max(axis=-1), right),
    }


def _of_indicators(problem: ProblemType, values: np.ndarray, label_ids: np.ndarray) -> _Parts:
    true, predicted = label_ids > 0, values >= THRESHOLD
    right = (true == predicted).all(axis=-1)
    return {"label": [*map(problem.answer, label_ids)]}, {
        "is_wrong": ~right,
        "values": {"accuracy": right},
        "counts": Counts(*(np.array(x.nonzero()) for x in (true, predicted, true & predicted))),
        "confidence": (values.ravel(), true.ravel()),
        "unit": "labels",
    }


def _of_numbers(problem: ProblemType, values: np.ndarray, label_ids: np.ndarray) -> _Parts:
    names = [name.replace("prediction", "label", 1) for name in problem.columns()]
    true, predicted = (x.reshape(-1, len(names)) for x in (label_ids, values))
    errors = np.abs(predicted.astype(np.float64) - true).mean(axis=1)
    labels, name = dict(zip(names, true.T, strict=True)), "mean_absolute_error"
    deviation = float(np.abs(true - true.mean(axis=0, dtype=np.float64)).mean())
    baseline = "always the mean", deviation, name
    return labels, {"values": {name: errors}, "numbers": (true, predicted), "baseline": baseline}
