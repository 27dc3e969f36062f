"""Numbers for texts, how alike two of them are for instance."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.data.features import InputExample
from bert_tf.data.packing import label_ids_of
from bert_tf.data.records import Feature
from bert_tf.errors import UserError
from bert_tf.evaluation.metrics import regression_metrics
from bert_tf.modeling import BertClassifier
from bert_tf.tasks.classification.text_task import TextTask


class Regression(TextTask):
    """A set whose labels are numbers.

    The head has one output, and the loss is its squared error.
    """

    best_metrics = ("pearson", "spearman", "loss", "mean_absolute_error")

    def label_feature(self) -> Feature:
        """A number."""
        return Feature("label_ids", dtype="float32")

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        """float32 [E]."""
        return label_ids_of(examples, ())

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder, and a head with one output."""
        return BertClassifier(self.config, 1, **kwargs)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Squared error [B]."""
        return keras.ops.square(outputs["logits"][:, 0] - batch["label_ids"])

    def training_loss(self, examples: Sequence[InputExample]) -> Callable:
        """`loss`.

        Raises:
            UserError: labels are to have weights, where there are only numbers.
        """
        if self.options.class_weights:
            raise UserError("--class_weights: the labels are numbers here, and not classes")
        return self.loss

    def metrics(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Correlations and errors."""
        return dict(
            regression_metrics(*map(results.get, ("values", "label_ids", "per_example_loss")))
        )

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`values` [B]."""
        return {"values": outputs["logits"][:, 0]}

    def columns(
        self, predictions: Mapping[str, np.ndarray]
    ) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """The number."""
        return ["prediction"], ([value] for value in predictions["values"])

    def answers(self, predictions: Mapping[str, np.ndarray]) -> list[str]:
        """The numbers within the scores that STS-B has, in three digits."""
        return [f"{value:.3f}" for value in np.clip(predictions["values"], 0.0, 5.0)]

    def predictions_of(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> list[float]:
        """The numbers of the texts."""
        return results["values"].tolist() if len(examples) else []
