"""Any number of labels for a text: each is there or not, whatever the others are.

B rows of a batch, E examples, L labels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bert_tf.data.features import InputExample
from bert_tf.data.records import Feature
from bert_tf.evaluation.metrics import (
    THRESHOLD,
    describe_report,
    multilabel_metrics,
    multilabel_report,
)
from bert_tf.modeling.losses import binary_cross_entropy
from bert_tf.progress import log
from bert_tf.tasks.classification.class_weights import label_weights
from bert_tf.tasks.classification.text_task import TextTask


class LabelsPrediction(NamedTuple):
    """The labels of a text, and how likely each one is."""

    labels: list[str]
    probabilities: dict[str, float]


class MultiLabel(TextTask):
    """A set whose texts have any number of labels.

    Each output of the head is the logit of a label; the loss is the mean of their cross entropies.
    """

    best_metrics = ("f1_micro", "f1_macro", "precision_micro", "recall_micro", "accuracy", "loss")

    def label_feature(self) -> Feature:
        """For each label whether it is there."""
        return Feature("label_ids", len(self.data.labels))

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        """int32 [E, L] of 0 and 1."""
        places = {label: place for place, label in enumerate(self.data.labels)}
        found = np.zeros((len(examples), len(places)), np.int32)
        for row, example in enumerate(examples):
            found[row, [places[label] for label in example.label or ()]] = 1
        return found

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean cross entropy of the labels [B]."""
        return ops.mean(self._losses(outputs, batch), axis=-1)

    def _losses(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        return binary_cross_entropy(outputs["logits"], batch["label_ids"])  # [B, L]

    def training_loss(self, examples: Sequence[InputExample]) -> Callable:
        """With `class_weights` those of some labels count more."""
        if not self.options.class_weights:
            return self.loss
        counts = self.label_ids(examples).sum(axis=0)
        weights = label_weights(self.options.class_weights, self.data.labels, counts)
        return lambda outputs, batch: ops.mean(weights * self._losses(outputs, batch), axis=-1)

    def metrics(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Of all labels together, and their mean."""
        return dict(multilabel_metrics(**results))

    def write_evaluation(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray], output_dir: str
    ) -> tuple[Mapping[str, Any], list[str]]:
        """Figures of each label."""
        names = ("probabilities", "label_ids", "is_real_example")
        report = multilabel_report(*(results[name] for name in names), labels=self.data.labels)
        log.info("%s", describe_report(report))
        return report, []

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`probabilities` [B, L], each from 0 to 1."""
        return {"probabilities": ops.sigmoid(outputs["logits"])}

    def columns(
        self, predictions: Mapping[str, np.ndarray]
    ) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """Labels, and the probability of each one."""
        names = ["labels", *(f"probability_{label}" for label in self.data.labels)]
        pairs = zip(self.answers(predictions), predictions["probabilities"], strict=True)
        return names, ([found, *row] for found, row in pairs)

    def answers(self, predictions: Mapping[str, np.ndarray]) -> list[str]:
        """The labels that were found, with the separator of the data between them."""
        separator = self.options.label_separator
        return [separator.join(self._found(row)) for row in predictions["probabilities"]]

    def _found(self, probabilities: Sequence[float]) -> list[str]:
        pairs = zip(self.data.labels, probabilities, strict=True)
        return [label for label, probability in pairs if probability >= THRESHOLD]

    def predictions_of(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> list[LabelsPrediction]:
        """The labels of the texts."""
        rows = results["probabilities"].tolist() if len(examples) else []
        return [
            LabelsPrediction(self._found(row), dict(zip(self.data.labels, row, strict=True)))
            for row in rows
        ]
