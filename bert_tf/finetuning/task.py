"""The base class of fine-tuning tasks.

In shapes, B is the batch size, C `texts_per_row`, and S `max_seq_length`.
"""

import abc
import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.data.feature_specs import Feature, sequence_features
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.tokenization import FullTokenizer

PREDICTIONS = "predictions.jsonl"


class Task(abc.ABC):
    """A fine-tuning task: data, model, loss and metrics. The run does everything else.

    Splits are "train", "eval" and "predict". Examples are the items that `read` returns. Rows are
    the model's inputs: records of a file, and rows of a batch. An example becomes one or more rows.

    Attributes:
        options: the task's options, which the run saves in `run.json`.
        labels: names of the model's outputs, in order, which the run saves in `labels.txt`. None if
            they are in the data: the run then sets them, see `find_labels`.
        is_label: checks a line of `labels.txt`.
        targets: features that the loss needs in addition to the encoder's inputs.
        texts_per_row: C, the number of choices in multiple choice, for inputs [B, C, S]; None for
            inputs [B, S], where a row is a single text or text pair.
        text_pairs: whether examples are text pairs; if so, the default signature of an exported
            model takes pairs, too. None if that is unknown, or differs between examples.
        run_entries: further entries for `run.json`, complete once the training set has been read.
        metric_names: metrics for `--best_metric`, without `eval_`; the first is the default.
        lower_is_better: the names of metrics to minimize.
        predict_split: the split that `--do_predict` writes predictions for. With "eval", they are
            also written if there is only `--do_eval`.
        loss_uses_padding: whether the loss depends on outputs at padding positions.
        rows_are_independent: whether the loss of a row depends only on that row; False with
            in-batch negatives.
        soft_targets: (model output, kind) for the logits that a `--teacher` provides; for kinds
            see `distillation.row_loss`. Empty if the task does not support distillation.
    """

    options: FineTuningOptions
    labels: Any = ()
    is_label: Callable[[str], object] = staticmethod(str.strip)
    targets: Sequence[Feature] = (Feature("label_ids"),)
    texts_per_row: int | None = None
    text_pairs: bool | None = False
    run_entries: Mapping[str, str] = types.MappingProxyType({})
    metric_names: Sequence[str] = ("loss",)
    lower_is_better: Collection[str] = ("loss",)
    predict_split: str = "predict"
    loss_uses_padding: bool = False
    rows_are_independent: bool = True
    soft_targets: Sequence[tuple[str, str]] = ()

    def find_labels(self, split: str) -> tuple[Sequence[str], str]:
        """Returns the labels in the data of a split, in the order of the outputs, and their source.

        Called once before `read`, for the first split that a run reads, unless the labels are known
        from the folder of the model. The source, such as a path, is for messages.
        """
        return self.labels, split

    @abc.abstractmethod
    def read(self, split: str) -> Sequence[Any]:
        """Reads and checks the examples of a split, as a sequence that can be sliced.

        Raises:
            UserError: a file is missing, invalid or empty.
        """

    @abc.abstractmethod
    def featurize(self, examples: Sequence[Any], split: str) -> Mapping[str, np.ndarray]:
        """Converts a slice of the examples to rows, at least one per example; must be thread-safe.

        Returns:
            An array [rows, ...] by name for each of `features(split)`; arrays with other names are
            dropped. The optional array `CUT_TOKENS` counts the tokens truncated from each row.
        """

    @abc.abstractmethod
    def build_model(self, **kwargs: Any) -> Any:
        """Builds the model, whose attribute `bert` must be the encoder.

        Args:
            kwargs: keyword arguments of `ConfiguredModel`.
        """

    @abc.abstractmethod
    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]."""

    @abc.abstractmethod
    def decode(self, examples: Sequence[Any], outputs: Mapping[str, np.ndarray]) -> Sequence[Any]:
        """Converts fetched outputs to predictions, one per example, or per question in SQuAD.

        Args:
            examples: items from `read` or `from_inputs`.
            outputs: arrays that `fetch` selects, for all rows in order; also `loss` [rows] if the
                split has targets and the rows are independent.
        """

    @abc.abstractmethod
    def metrics(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Computes metrics from predictions and the labels in the examples.

        Returns:
            Numbers by name. They include those of `metric_names`, with or without `eval_` in front,
            except `loss`: the run adds the mean loss over batches, as in the original BERT code.
        """

    def features(self, split: str) -> tuple[Feature, ...]:
        """Returns the features of the records: encoder inputs, and `targets` unless predicting."""
        inputs = sequence_features(self.options.max_seq_length, self.texts_per_row)
        return inputs if split == "predict" else (*inputs, *self.targets)

    def fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the tensors [B, ...] that `decode` needs; by default, all outputs."""
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
        """Writes predictions, by default to `predictions.jsonl`; returns the files' paths."""
        lines = (
            json.dumps(item._asdict() if hasattr(item, "_asdict") else item, ensure_ascii=False)
            for item in predictions
        )
        return files.write_texts(output_dir, {PREDICTIONS: "".join(f"{line}\n" for line in lines)})

    def report(
        self, examples: Sequence[Any], predictions: Sequence[Any], output_dir: str
    ) -> tuple[Mapping[str, Any], Iterable[str]]:
        """Reports details of an evaluation, in addition to the metrics.

        Returns:
            Additional entries for `eval_results.json`, and the paths of the files written.
        """
        return {}, ()

    def serve(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the outputs of an exported model, possibly strings; by default, like `fetch`."""
        return self.fetch(outputs, batch)

    def epoch_size(self, examples: Sequence[Any]) -> int:
        """Returns the number of rows per epoch; by default, the number of examples."""
        return len(examples)

    def texts(self, examples: Sequence[Any]) -> Iterable[Iterable[str]]:
        """Returns the texts of each example; by default, the `repr` of its `identity`.

        The run uses them to recognize training examples in an evaluation. A task should leave out
        labels, so that an example with a different label is recognized, too.
        """
        return ([repr(item)] for item in self.identity(examples))

    def identity(self, examples: Sequence[Any]) -> Iterable[Any]:
        """Returns items whose `repr` identifies the examples, independently of flags.

        The run uses it to detect changed training data, and to reuse the records of an earlier run
        if flags, vocabulary and labels are also the same.
        """
        return examples


MakeTask = Callable[[Any, BertConfig, FullTokenizer], Task]
