"""The contract between a fine-tuning task and the runner."""

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from bert_tf.data.parallel import chunks
from bert_tf.data.records import Feature

# Splits, and the records that the original writes for each.
RECORD_FILES = {
    "train": "train.tf_record",
    "eval": "eval.tf_record",
    "predict": "predict.tf_record",
}
# Examples, or rows, that become features together, where nothing speaks against it.
_CONVERTED_TOGETHER = 1024


@dataclass(frozen=True)
class Part:
    """The rows from `first` up to, not including, `last`, of what has rows of its own."""

    rows: Any
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


def parts(rows: Sized) -> Iterator[Part]:
    """All rows, some after the other, for the `portions` of a task."""
    for first in range(0, len(rows), _CONVERTED_TOGETHER):
        yield Part(rows, first, min(first + _CONVERTED_TOGETHER, len(rows)))


class Task(abc.ABC):
    """What a fine-tuning task says about itself; everything else is the runner's.

    A split is one of `train`, `eval`, `predict`. An example is whatever `read_examples` gives;
    a row is what becomes one record and one row of a batch. An example may become several rows.

    Attributes:
        evaluation_split: the split that is evaluated. Where it is `predict`, evaluation is of the
            predictions, and what serves both is done once.
        record_files: names of the records of each split.
        result_files: names of what `write_predictions` and `write_evaluation` write.
        best_metrics: figures that may tell the best weights, without `eval_`; the usual one first.
        result_suffix: appended to the names of result files, before the extension.
    """

    evaluation_split: str = "eval"
    record_files: Mapping[str, str] = RECORD_FILES
    result_files: Sequence[str] = ()
    best_metrics: Sequence[str] = ()
    result_suffix: str = ""

    @abc.abstractmethod
    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the records of a split."""

    @abc.abstractmethod
    def read_examples(self, split: str) -> Sequence[Any]:
        """Reads and checks the data of a split.

        Raises:
            UserError: a file is missing, holds nonsense, or holds nothing.
        """

    def portions(self, examples: Sequence[Any], split: str) -> Iterable[Any]:
        """Divides what `read_examples` gave into what `to_features` gets, which fits into memory.

        They have lengths, which are shown as progress.
        """
        return list(chunks(examples, _CONVERTED_TOGETHER))

    @abc.abstractmethod
    def to_features(self, examples: Any, split: str) -> Mapping[str, np.ndarray]:
        """Turns one of `portions` into the features of its records, in order.

        Several threads call it at once.

        Returns:
            An array [n, ..] for each of `features`; beyond them there may be `CUT_TOKENS`.
        """

    def num_rows(self, examples: Sequence[Any]) -> int:
        """How many rows an epoch of these examples has.

        By default as many as there are examples, as in the original, also where long ones become
        several rows.
        """
        return len(examples)

    def identity(self, examples: Sequence[Any]) -> Iterable[Any]:
        """What tells these examples from others, by its `repr`, whatever the flags are."""
        return examples

    def record_settings(self) -> Any:
        """What the records depend on beside the examples and the vocabulary, for comparison.

        Its `repr` is what counts. None: records are made anew each time.
        """
        return None

    @property
    def reads_padding(self) -> bool:
        """Whether the loss depends on what the model says of padding."""
        return False

    @abc.abstractmethod
    def build_model(self, **kwargs: Any) -> keras.Model:
        """The model, from random values; `kwargs` are for its class, `recompute_layers` say."""

    def assets(self) -> Mapping[str, str]:
        """What has to lie beside the checkpoints for using them: texts by the names of files."""
        return {}

    @abc.abstractmethod
    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Loss of each row [B] from the model's outputs."""

    def training_loss(self, examples: Sequence[Any]) -> Callable[[Any, Mapping[str, Any]], Any]:
        """`loss`, or another one that only the training on these examples has."""
        return self.loss

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What evaluation needs of each row: tensors [B, ..], `per_example_loss` [B] among them.

        Not asked for where evaluation is of the predictions.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def metrics(self, examples: Sequence[Any], results: Any) -> dict[str, Any]:
        """Figures of an evaluation.

        Args:
            examples: of `evaluation_split`.
            results: what `combine` made of the `eval_outputs` of all rows; what `decode` gave where
                evaluation is of the predictions.
        """

    def write_evaluation(
        self, examples: Sequence[Any], results: Any, output_dir: str
    ) -> tuple[Mapping[str, Any], list[str]]:
        """Writes what an evaluation has beyond figures.

        Args:
            examples: of `evaluation_split`.
            results: as in `metrics`.
            output_dir: where to.

        Returns:
            More for `eval_results.json`, and paths of files.
        """
        return {}, []

    @abc.abstractmethod
    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What prediction needs of each row: tensors [B, ..]."""

    def combine(
        self, examples: Sequence[Any], results: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """From outputs of all rows, in order, to those of the examples."""
        return results

    def decode(self, examples: Sequence[Any], results: Mapping[str, np.ndarray]) -> Any:
        """From what `combine` made of `predict_outputs` to what it says about the examples."""
        return results

    @abc.abstractmethod
    def write_predictions(
        self, examples: Sequence[Any], predictions: Any, output_dir: str
    ) -> Iterable[str]:
        """Writes the files of a prediction, from what `decode` gave.

        Returns:
            Paths of the files.
        """

    def served_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What a SavedModel gives for each row: tensors [B, ..] that XLA can compute."""
        return self.predict_outputs(outputs, batch)

    def served_names(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Adds to `served_outputs` what is made of texts, names of labels for instance."""
        return outputs

    @property
    def takes_pairs(self) -> bool:
        """Whether an example has two texts."""
        return False

    @abc.abstractmethod
    def examples_of(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """What a program gave, one by one, as the examples of the split `predict`.

        Raises:
            UserError: an input is of another kind than the task takes.
        """

    @abc.abstractmethod
    def predictions_of(
        self, examples: Sequence[Any], results: Mapping[str, np.ndarray]
    ) -> list[Any]:
        """What a program gets for each of its inputs.

        Args:
            examples: of `examples_of`.
            results: what `combine` made of the `predict_outputs` of all rows; empty where there are
                no rows.
        """
