"""The three problem types: one label per text, any number of labels, or one or more numbers.

Shapes: B rows in a batch, E examples, L labels.
"""

import abc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import backend
from bert_tf.base.errors import UserError, note
from bert_tf.checkpoints.run_folder import TARGET_SCALE
from bert_tf.data import array_ops
from bert_tf.data.features import Feature, InputExample, find_label_id
from bert_tf.report.evaluation import Column, Counts, EvaluationReport
from bert_tf.tables.columns import parse_number
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.metrics import (
    THRESHOLD,
    classification_metrics,
    multilabel_metrics,
    regression_metrics,
)
from bert_tf.tasks.classification.options import (
    CLASSIFICATION,
    MULTILABEL,
    REGRESSION,
    ClassifierOptions,
)

# Metrics to minimize.
LOWER_IS_BETTER = ("loss", "mean_absolute_error")


class ClassPrediction(NamedTuple):
    """The most likely label of a text, and the probability of each label."""

    label: str
    probabilities: dict[str, float]


class LabelsPrediction(NamedTuple):
    """The labels of a text, and the probability of each label."""

    labels: list[str]
    probabilities: dict[str, float]


class ProblemType(abc.ABC):
    """Target, loss, outputs, metrics and prediction columns of a problem type.

    Attributes:
        labels: names of the labels in the order of their ids; for regression, names of the targets,
            empty if there is only one.
        num_outputs: number of outputs of the model's head.
        target: the feature with the labels of a row.
        metric_names: metrics for `--best_metric`; the first is the default.
        soft_target: kind of the logits, see `Traits.soft_targets`.
        output: name under which `values` are fetched; predictions are made from them.
        answer_column: name of the column with the `answer`s in a table of predictions.
        mean, scale: `values * scale + mean` has the unit of the labels; of each target.
        metrics: (values, label_ids, losses [E]) -> metrics of an evaluation.
    """

    metric_names: Sequence[str]
    soft_target: str = "classes"
    output: str = "probabilities"
    answer_column: str = "label"
    mean: Any = 0.0
    scale: Any = 1.0
    metrics: Callable[..., Mapping[str, Any]]
    _dtype: type[np.number] = np.int32

    def __init__(self, data: TextDataset, options: ClassifierOptions) -> None:
        self.labels, self.options = data.labels, options
        self.num_outputs = len(data.labels)
        self.target = Feature("label_ids")
        self._weights: np.ndarray | None = None
        if primary := data.primary_metric:
            self.metric_names = sorted(self.metric_names, key=lambda name: name != primary)

    def set_class_weights(self, examples: Sequence[InputExample]) -> None:
        """Sets the weights of labels in the training loss according to `--class_weights`."""
        if self.soft_target == "number":
            raise UserError("--class_weights: the labels are numbers, not classes")
        ids, num_labels = self.label_ids(examples), len(self.labels)
        counts = np.bincount(ids, minlength=num_labels) if ids.ndim == 1 else ids.sum(axis=0)
        self._weights = label_weights(self.options.class_weights or "", self.labels, counts)

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        """Converts labels to ids [E], 0/1 indicators [E, L], or numbers [E] or [E, L]."""
        return np.array([find_label_id(example, self.labels) for example in examples], self._dtype)

    def targets(self, examples: Sequence[InputExample]) -> np.ndarray:
        """Converts labels to what the loss compares with the logits."""
        return self.label_ids(examples)

    @abc.abstractmethod
    def loss(self, logits: Any, label_ids: Any, training: bool) -> Any:
        """Computes the loss of each row, [B]."""

    @abc.abstractmethod
    def values(self, logits: Any) -> Any:
        """Converts logits [B, L] to probabilities [B, L], or to numbers [B] or [B, L]."""

    def columns(self) -> list[str]:
        """Returns the names of the `cells` in a table of predictions."""
        return [self.answer_column, *(f"probability_{label}" for label in self.labels)]

    def cells(self, value: Any) -> list[Any]:
        """Converts the values of one example to cells."""
        return [self.answer(value), *value]

    def rows(self, examples: Sequence[InputExample], values: np.ndarray) -> Iterator[Sequence[Any]]:
        """Yields the header and the rows of a table of predictions."""
        has_pairs = any(example.text_b for example in examples)
        text_columns = ["text", "text_pair"] if has_pairs else ["text"]
        yield ["id", *text_columns, *self.columns()]
        for example, value in zip(examples, values, strict=True):
            texts = [example.text_a, example.text_b or ""] if has_pairs else [example.text_a]
            yield [example.guid, *texts, *self.cells(value)]

    def report(
        self, examples: Sequence[InputExample], values: np.ndarray, losses: np.ndarray | None
    ) -> EvaluationReport:
        """Compares values [E, ...] with labels; `losses` are [E], if they are known."""
        header, *rows = self.rows(examples, values)
        header = ["prediction" if name == self.answer_column else name for name in header]
        columns: dict[str, Column] = dict(zip(header, zip(*rows, strict=True), strict=True))
        texts = {name: columns.pop(name) for name in ("id", "text", "text_pair") if name in columns}
        labels, parts = self._compare(values, self.label_ids(examples))
        columns = {**texts, **labels, **columns}
        return EvaluationReport(columns=columns, losses=losses, labels=self.labels, **parts)

    @abc.abstractmethod
    def _compare(
        self, values: np.ndarray, label_ids: np.ndarray
    ) -> tuple[Mapping[str, Column], dict[str, Any]]:
        """Returns the columns of the labels, and more arguments of an `EvaluationReport`."""

    def serve(self, values: Any) -> dict[str, Any]:
        """Returns the outputs of an exported model, given its `values`."""
        return {self.output: values}

    @abc.abstractmethod
    def prediction(self, value: Any) -> Any:
        """Converts the values of one example to what a `Predictor` returns."""

    @abc.abstractmethod
    def answer(self, value: Any) -> str:
        """Converts the values of one example to the text of `answer_column`."""


class _SingleLabel(ProblemType):
    """Each text has one label."""

    metrics = staticmethod(classification_metrics)

    def __init__(self, data: TextDataset, options: ClassifierOptions) -> None:
        binary = ("f1", "precision", "recall") if len(data.labels) == 2 else ()
        overall = ("f1_macro", "f1_micro", "precision_macro", "recall_macro", "matthews", "loss")
        self.metric_names = ("accuracy", *binary, *overall)
        super().__init__(data, options)

    def loss(self, logits: Any, label_ids: Any, training: bool) -> Any:
        from bert_tf.modeling.losses import cross_entropy

        losses = cross_entropy(logits, label_ids)
        if training and self._weights is not None:
            return array_ops.namespace(losses).take(self._weights, label_ids) * losses
        return losses

    def values(self, logits: Any) -> Any:
        return array_ops.softmax(logits)

    def _compare(self, values: np.ndarray, label_ids: np.ndarray) -> Any:
        predicted = values.argmax(axis=-1)
        right = predicted == label_ids
        return {"label": [self.labels[label_id] for label_id in label_ids]}, {
            "is_wrong": ~right,
            "counts": Counts.of_classes(label_ids, predicted, np.arange(len(values))),
            "positive": 1 if len(self.labels) == 2 else None,
            "confusion": (label_ids, predicted),
            "confidence": (values.max(axis=-1), right),
        }

    def serve(self, values: Any) -> dict[str, Any]:
        tf = backend.tf
        best = tf.argmax(values, axis=-1)
        return {self.output: values, "label": tf.gather(tf.constant(list(self.labels)), best)}

    def prediction(self, value: Any) -> ClassPrediction:
        return ClassPrediction(self.answer(value), dict(zip(self.labels, value, strict=True)))

    def answer(self, value: Any) -> str:
        return self.labels[int(np.argmax(value))]


class _MultiLabel(ProblemType):
    """Each text has any number of labels; the loss is the mean of their cross entropies."""

    metric_names = ("f1_micro", "f1_macro", "precision_micro", "recall_micro", "accuracy", "loss")
    answer_column = "labels"
    soft_target = "labels"
    metrics = staticmethod(multilabel_metrics)

    def __init__(self, data: TextDataset, options: ClassifierOptions) -> None:
        super().__init__(data, options)
        self.target = Feature("label_ids", len(self.labels))

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        columns = {label: column for column, label in enumerate(self.labels)}
        label_ids = np.zeros((len(examples), len(columns)), np.int32)
        for row, example in enumerate(examples):
            label_ids[row, [columns[label] for label in example.label or ()]] = 1
        return label_ids

    def loss(self, logits: Any, label_ids: Any, training: bool) -> Any:
        from bert_tf.modeling.losses import binary_cross_entropy

        losses = binary_cross_entropy(logits, label_ids)  # [B, L]
        if training and self._weights is not None:
            losses = self._weights * losses
        return array_ops.namespace(losses).mean(losses, axis=-1)

    def values(self, logits: Any) -> Any:
        return array_ops.sigmoid(logits)

    def _compare(self, values: np.ndarray, label_ids: np.ndarray) -> Any:
        true, predicted = label_ids > 0, values >= THRESHOLD
        right = (true == predicted).all(axis=-1)
        return {"label": [*map(self.answer, label_ids)]}, {
            "is_wrong": ~right,
            "values": {"accuracy": right},
            "counts": Counts(*(np.array(x.nonzero()) for x in (true, predicted, true & predicted))),
            "confidence": (values.ravel(), true.ravel()),
            "unit": "labels",
        }

    def prediction(self, value: Any) -> LabelsPrediction:
        labels = self._predicted_labels(value)
        return LabelsPrediction(labels, dict(zip(self.labels, value, strict=True)))

    def answer(self, value: Any) -> str:
        return (self.options.label_separator or " ").join(self._predicted_labels(value))

    def _predicted_labels(self, value: Any) -> list[str]:
        pairs = zip(self.labels, value, strict=True)
        return [label for label, probability in pairs if probability >= THRESHOLD]


class _Regression(ProblemType):
    """Each text has a number, or several; the loss is the mean of the squared errors.

    With a `target_scale`, the model's outputs and the loss are about standardized numbers. Those
    of the labels are float64, because float32 does not distinguish 1e9 and 1e9 + 1.
    """

    metric_names = ("pearson", "spearman", "loss", "mean_absolute_error")
    output = "values"
    answer_column = "prediction"
    soft_target = "number"
    metrics = staticmethod(regression_metrics)

    def __init__(self, data: TextDataset, options: ClassifierOptions) -> None:
        super().__init__(data, options)
        self.num_outputs = max(len(self.labels), 1)
        self.target = Feature("label_ids", len(self.labels) or None, dtype="float32")
        pairs = json.loads(data.entries.get(TARGET_SCALE, "[]"))
        self._dtype = np.float64 if pairs else np.float32
        pairs = pairs if self.labels or not pairs else pairs[0]
        self.mean, self.scale = np.transpose(pairs) if pairs else (0.0, 1.0)

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        if not self.labels:
            return super().label_ids(examples)
        return np.array([[*map(float, example.label)] for example in examples], self._dtype)

    def targets(self, examples: Sequence[InputExample]) -> np.ndarray:
        return ((self.label_ids(examples) - self.mean) / self.scale).astype(np.float32)

    def loss(self, logits: Any, label_ids: Any, training: bool) -> Any:
        ops = array_ops.namespace(logits)
        if not self.labels:
            return ops.square(logits[:, 0] - label_ids)
        return ops.mean(ops.square(logits - label_ids), axis=-1)

    def values(self, logits: Any) -> Any:
        return logits if self.labels else logits[:, 0]

    def _compare(self, values: np.ndarray, label_ids: np.ndarray) -> Any:
        names = [name.replace("prediction", "label", 1) for name in self.columns()]
        true, predicted = (x.reshape(-1, len(names)) for x in (label_ids, values))
        errors = np.abs(predicted.astype(np.float64) - true).mean(axis=1)
        labels, name = dict(zip(names, true.T, strict=True)), "mean_absolute_error"
        deviation = float(np.abs(true - true.mean(axis=0, dtype=np.float64)).mean())
        baseline = "always the mean", deviation, name
        return labels, {
            "values": {name: errors},
            "numbers": (true, predicted),
            "baseline": baseline,
        }

    def serve(self, values: Any) -> dict[str, Any]:
        return {self.output: values * np.float32(self.scale) + np.float32(self.mean)}

    def prediction(self, value: Any) -> float | dict[str, float]:
        return dict(zip(self.labels, value, strict=True)) if self.labels else float(value)

    def columns(self) -> list[str]:
        return [f"prediction_{name}" for name in self.labels] or [self.answer_column]

    def cells(self, value: Any) -> list[Any]:
        return [*np.atleast_1d(value)]

    def answer(self, value: Any) -> str:
        # Used only for GLUE's STS-B submission: scores from 0 to 5, with three decimals.
        return f"{np.clip(value, 0.0, 5.0):.3f}"


PROBLEM_TYPES: Mapping[str, type[ProblemType]] = {
    CLASSIFICATION: _SingleLabel,
    MULTILABEL: _MultiLabel,
    REGRESSION: _Regression,
}


def label_weights(spec: str, labels: Sequence[str], counts: np.ndarray) -> np.ndarray:
    """Returns the weights that `--class_weights` specifies, float32 [L]; 1 for unnamed labels.

    With `balanced`, all labels contribute equally to the loss: given the `counts` [L] of labels in
    the training set, a label's weight is the mean count divided by its count, or 1 if that is 0.
    """
    if spec == "balanced":
        weights = np.where(counts > 0, counts.sum() / len(labels) / np.maximum(counts, 1), 1.0)
    else:
        weight_of_label: dict[str, float] = {}
        for part in map(str.strip, spec.split(",")):
            label, _, number = part.rpartition(":")  # a label may contain a colon
            weight = parse_number(number.strip()) or 0.0
            if label not in labels or label in weight_of_label or weight <= 0:
                form = f"balanced, or label:weight, each once, for {', '.join(labels)}"
                raise UserError(f"--class_weights must be {form}. Received: {part}")
            weight_of_label[label] = weight
        weights = np.array([weight_of_label.get(label, 1.0) for label in labels])
    formatted = (f"{label} {weight:.3g}" for label, weight in zip(labels, weights, strict=True))
    note(f"Weights of the labels: {', '.join(formatted):.500}")
    return weights.astype(np.float32)
