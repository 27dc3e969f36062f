"""The contract between a fine-tuning task and the runner."""

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.data.records import Feature

# Splits, and the records that the original writes for each.
RECORD_FILES = {
    "train": "train.tf_record",
    "eval": "eval.tf_record",
    "predict": "predict.tf_record",
}


class Task(abc.ABC):
    """What a fine-tuning task says about itself; everything else is the runner's.

    A split is one of `train`, `eval`, `predict`. An example is whatever `read_examples` gives;
    a row is what becomes one record and one row of a batch. An example may become several rows.
    """

    @abc.abstractmethod
    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the records of a split."""

    @abc.abstractmethod
    def read_examples(self, split: str) -> Sequence[Any]:
        """Reads and checks the data of a split.

        Raises:
            UserError: a file is missing, holds nonsense, or holds nothing.
        """

    @abc.abstractmethod
    def to_features(self, examples: Sequence[Any], split: str) -> Mapping[str, np.ndarray]:
        """Turns some examples, one or more, into the features of their records, in order.

        Several threads call it at once.

        Returns:
            An array [n, ..] for each of `features`.
        """

    @abc.abstractmethod
    def build_model(self, **kwargs: Any) -> keras.Model:
        """The model, from random values; `kwargs` are for its class, `recompute_layers` say."""

    @abc.abstractmethod
    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Loss of each row [B] from the model's outputs."""

    @abc.abstractmethod
    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What evaluation needs of each row: tensors [B, ..], `per_example_loss` [B] among them."""

    @abc.abstractmethod
    def metrics(self, results: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Figures of an evaluation, from `eval_outputs` of all rows, in order."""

    @abc.abstractmethod
    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What prediction needs of each row: tensors [B, ..]."""

    @abc.abstractmethod
    def write_predictions(
        self, examples: Sequence[Any], results: Mapping[str, np.ndarray], output_dir: str
    ) -> Iterable[str]:
        """Writes the files of a prediction, from `predict_outputs` of all rows, in order.

        Returns:
            Paths of the files.
        """
