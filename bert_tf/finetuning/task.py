"""The contract of a fine-tuning task.

B batch, C texts of a row, S max_seq_length.
"""

import abc
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import files
from bert_tf.data.records import Feature, sequence_features
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions

PREDICTIONS = "predictions.jsonl"


class Task(abc.ABC):
    """A fine-tuning task: data, model, loss and metrics. The run does everything else.

    Splits are "train", "eval" and "predict". An example is whatever `read` returns items of; a row
    is one record, and one row of a batch. An example may become several rows.

    Attributes:
        options: the task's own options, as `run.json` saves them.
        labels: names of the model's outputs, in order; the run keeps them in `labels.txt`.
        targets: features that the loss needs beside the encoder's inputs.
        texts_per_row: C; None for rows of one text, [B, S] instead of [B, C, S].
        text_pairs: whether an exported model takes two texts by default.
        metric_names: metrics that `--best_metric` accepts, without `eval_`, the default first.
        lower_is_better: those of which lower is better.
        predict_split: the split that predictions are written for; "eval" if they are what is
            evaluated.
        result_files: names of the files that `write_predictions` and `report` write.
        loss_uses_padding: whether the loss depends on outputs at padding.
        rows_are_independent: whether the loss of a row depends on that row only; False for
            in-batch negatives.
        soft_targets: outputs that `--teacher` can teach, with their kind, see
            `distillation.row_loss`; none if the task does not support it.
    """

    options: FineTuningOptions
    labels: Sequence[str] = ()
    targets: Sequence[Feature] = (Feature("label_ids"),)
    texts_per_row: int | None = None
    text_pairs: bool = False
    metric_names: Sequence[str] = ("loss",)
    lower_is_better: Collection[str] = ("loss",)
    predict_split: str = "predict"
    result_files: Sequence[str] = (PREDICTIONS,)
    loss_uses_padding: bool = False
    rows_are_independent: bool = True
    soft_targets: Sequence[tuple[str, str]] = ()

    @abc.abstractmethod
    def read(self, split: str) -> Sequence[Any]:
        """Reads and checks the examples of a split; they can be sliced.

        Raises:
            UserError: a file is missing, invalid or empty.
        """

    @abc.abstractmethod
    def featurize(self, examples: Sequence[Any], split: str) -> Mapping[str, np.ndarray]:
        """Converts a slice of the examples to rows, at least one for each; threads call it.

        Returns:
            An array [rows, ...] for each of `features(split)`; others are dropped. The reserved
            `CUT_TOKENS` reports how many tokens each row lost.
        """

    @abc.abstractmethod
    def build_model(self, **kwargs: Any) -> keras.Model:
        """Builds the model; its attribute `bert` is the encoder.

        Args:
            kwargs: keyword arguments of `ConfiguredModel`.
        """

    @abc.abstractmethod
    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]."""

    @abc.abstractmethod
    def decode(self, examples: Sequence[Any], outputs: Mapping[str, np.ndarray]) -> Sequence[Any]:
        """Converts fetched outputs to predictions, one for each example or, in SQuAD, question.

        Args:
            examples: of `read` or `from_inputs`.
            outputs: what `fetch` selects, of all rows in order; and `loss` [rows] if the split has
                the targets and rows are independent.
        """

    @abc.abstractmethod
    def metrics(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Compares predictions with the labels that the examples carry.

        Returns:
            Numbers by name. Names begin with `eval_`, and those of `metric_names`, except for loss,
            are among them. The run adds `loss`, the original's mean over batches.
        """

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the records: the encoder's inputs, and `targets` except for prediction."""
        inputs = sequence_features(self.options.max_seq_length, self.texts_per_row)
        return inputs if split == "predict" else (*inputs, *self.targets)

    def fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the tensors [B, ...] that `decode` needs; by default all outputs."""
        return outputs

    def from_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Converts the inputs of a `Predictor` to examples.

        Raises:
            UserError: an input has the wrong type, or the task has no Predictor.
        """
        raise UserError(f"{type(self).__name__} cannot be used as a Predictor")

    def write_predictions(
        self, examples: Sequence[Any], predictions: Sequence[Any], output_dir: str
    ) -> Iterable[str]:
        """Writes the predictions and returns the paths; by default `predictions.jsonl`."""
        path = os.path.join(output_dir, PREDICTIONS)
        lines = (
            json.dumps(found._asdict() if hasattr(found, "_asdict") else found, ensure_ascii=False)
            for found in predictions
        )
        files.write_text(path, "".join(f"{line}\n" for line in lines))
        return [path]

    def report(
        self, examples: Sequence[Any], predictions: Sequence[Any], output_dir: str
    ) -> tuple[Mapping[str, Any], Iterable[str]]:
        """Reports on an evaluation beyond metrics.

        Returns:
            More entries for `eval_results.json`, and paths of files that were written.
        """
        return {}, ()

    def serve(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the outputs of an exported model, including strings; by default as `fetch`."""
        return self.fetch(outputs, batch)

    def epoch_size(self, examples: Sequence[Any]) -> int:
        """Returns how many rows count as an epoch; by default the number of examples."""
        return len(examples)

    def identity(self, examples: Sequence[Any]) -> Iterable[Any]:
        """Returns what identifies the examples, by its `repr`, whatever the flags are.

        The run detects changed training data by it, and reuses the records of an earlier run if
        flags, vocabulary and labels are the same, too.
        """
        return examples
