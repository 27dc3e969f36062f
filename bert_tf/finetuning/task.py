"""The base class of fine-tuning tasks, and what the run knows about a task.

In shapes, B is the batch size, C the number of texts in a row, and S `max_seq_length`.
"""

import abc
import dataclasses
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.base.foreign_names import advice_of
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data.features import Feature, sequence_features
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.tokenization import FullTokenizer

PREDICTIONS = "predictions.jsonl"


@dataclasses.dataclass(frozen=True)
class Schema:
    """What a model's outputs and inputs mean, as far as the options do not say it.

    Training takes it from the training data, and saves it in `labels.txt` and `run.json`.

    Attributes:
        labels: names of the model's outputs, in order; empty if they have none.
        text_pairs: whether examples are text pairs; if so, the default signature of an exported
            model takes pairs, too. None if that is unknown, or differs between examples.
        entries: the task's own entries of `run.json`.
        source: where the labels come from, such as a path, for messages.
        files: further files that training writes next to checkpoints: name -> text.
    """

    labels: tuple[str, ...] = ()
    text_pairs: bool | None = False
    entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


NO_SCHEMA = Schema()


class Metric(NamedTuple):
    """A metric by which `--best_metric` selects weights; its name has no `eval_`."""

    name: str
    lower_is_better: bool = False


LOSS = Metric("loss", lower_is_better=True)


@dataclasses.dataclass(frozen=True)
class Traits:
    """What the run must know about a task.

    Attributes:
        monitors: metrics for `--best_metric`; the first is the default.
        soft_targets: (model output, kind) for the logits that a `--teacher` provides; for kinds
            see `distillation.row_loss`. Empty if the task does not support distillation.
        loss_depends_on: what the loss of a row depends on besides the outputs for its tokens:
            "padding", the outputs at padding positions; "batch", other rows, as with in-batch
            negatives. In the latter case, `Task.loss` gets the whole batch, also on several
            devices and with --gradient_accumulation_steps: the model's outputs, all of which it
            must depend on, and the features that are not `per_token`.
        inputs_are_independent: whether the prediction for an input of a `Predictor` depends only
            on that input.
        exports_texts: whether an exported model takes texts; False if the task inserts tokens
            that a text cannot express, or if a row has several texts.
        export_note: how an exported SavedModel differs from the trained model, for the log.
        unit: what the examples of an evaluation are, for the log.
        takes_pairs: whether the model was trained on pairs of texts; None if unknown, or on both.
    """

    monitors: tuple[Metric, ...] = (LOSS,)
    soft_targets: tuple[tuple[str, str], ...] = ()
    loss_depends_on: frozenset[str] = frozenset()
    inputs_are_independent: bool = True
    exports_texts: bool = True
    export_note: str = ""
    unit: str = "example"
    takes_pairs: bool | None = None


class Written(NamedTuple):
    """Paths of the files that a task wrote, and additional entries for `eval_results.json`."""

    paths: Sequence[str] = ()
    entries: Mapping[str, Any] = types.MappingProxyType({})


class Task(abc.ABC):
    """A fine-tuning task: data, model, loss and metrics. The run does everything else.

    Splits are "train", "eval" and "predict". Examples are the items that `read` returns. Rows are
    the model's inputs: records of a file, and rows of a batch. An example becomes one or more rows.
    The constructor takes `(options, config, tokenizer)`, and reads no files.

    Attributes:
        options: the task's options, which the run saves in `run.json`.
        schema: what `infer_schema` returned; `give_schema` sets it before it calls anything else.
        traits: what the run must know; may depend on options and schema.
    """

    options: FineTuningOptions
    schema: Schema = NO_SCHEMA
    traits: Traits = Traits()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raises a TypeError for members of version 1.0, which would have no effect."""
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if effect := advice_of(["Task"], name):
                raise TypeError(f"{cls.__name__}.{name} has {effect}")

    def infer_schema(self, source: str | RunFolder) -> Schema:
        """Infers the schema from the data of a split, or takes it from the folder of a model.

        By default, the schema is constant.

        Raises:
            UserError: the data or the folder are invalid.
        """
        return self.schema

    def open_teacher(self, devices: Any) -> Any:
        """Opens a `--teacher` of another kind, a `distillation.Teacher`; None: there is none."""
        return None

    @abc.abstractmethod
    def read(self, split: str) -> Sequence[Any]:
        """Reads and checks the examples of a split, as a sequence that can be sliced.

        Raises:
            UserError: a file is missing, invalid or empty.
        """

    def check(
        self, split: str, examples: Sequence[Any], train_examples: Sequence[Any]
    ) -> Iterable[str]:
        """Yields a sentence for each thing that looks wrong in the examples, which the run logs.

        `train_examples` are those of the training set; empty if this run does not train.
        """
        return ()

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
                split has all features of training, and the loss does not depend on the batch.
        """

    @abc.abstractmethod
    def metrics(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Computes metrics from predictions and the labels in the examples.

        Returns:
            Numbers by name. They include those of `traits.monitors`, with or without `eval_` in
            front, except `loss`: the run adds the mean loss over batches, as in the original BERT
            code.
        """

    def features(self, split: str) -> tuple[Feature, ...]:
        """Returns the features of the records: encoder inputs and, unless predicting, label ids."""
        inputs = sequence_features(self.options.max_seq_length)
        return inputs if split == "predict" else (*inputs, Feature("label_ids"))

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> Mapping[str, Any]:
        """Selects the tensors [B, ...] that `decode` needs; by default, all outputs.

        If `serving`, selects the outputs of an exported SavedModel, possibly strings.
        """
        return outputs

    def from_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Converts the inputs of a `Predictor` to examples.

        Raises:
            UserError: an input has the wrong type, or the task has no Predictor.
        """
        raise UserError(f"{type(self).__name__} cannot be used as a Predictor")

    def explain(self, model: Any, item: Any, prediction: Any, label: str | None, steps: int) -> Any:
        """Explains a prediction, see `Predictor.explain`; by default, raises a UserError."""
        raise UserError(f"explain() supports classification of texts, not {type(self).__name__}")

    def write(
        self, split: str, examples: Sequence[Any], predictions: Sequence[Any], folder: str
    ) -> Written:
        """Writes predictions for the test set, by default to `predictions.jsonl`.

        Called for each split that is evaluated or predicted, to write more files about it.
        """
        if split != self.options.predict_split:
            return Written()
        items = (item._asdict() if hasattr(item, "_asdict") else item for item in predictions)
        content = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        return Written(files.write_texts(folder, {PREDICTIONS: content}))

    def evaluation_report(
        self, examples: Sequence[Any], predictions: Sequence[Any], losses: np.ndarray | None
    ) -> EvaluationReport:
        """Describes an evaluation for `report.html`; by default, texts, predictions and losses.

        `losses` are those of the rows [rows]; None if they are unknown.
        """
        texts = [" ".join(texts) for _, texts in self.identity(examples) if texts]
        if len(texts) != len(predictions):
            return EvaluationReport()
        columns = {"text": texts, "prediction": predictions}
        labels = [getattr(example, "label", None) for example in examples[: len(texts)]]
        if len(labels) == len(texts) and None not in labels:
            columns["label"] = labels
        has_losses = losses is not None and len(losses) == len(texts)
        return EvaluationReport(columns=columns, losses=losses if has_losses else None)

    def epoch_size(self, examples: Sequence[Any]) -> int:
        """Returns the number of rows per epoch; by default, the number of examples."""
        return len(examples)

    def identity(self, examples: Sequence[Any]) -> Iterable[tuple[Any, Sequence[str]]]:
        """Returns a pair for each example: an item whose `repr` identifies it, and its texts.

        The items do not depend on flags. By them, the run detects changed training data, and
        reuses the records of an earlier run if flags, vocabulary and labels are also the same. By
        the texts, which should not include labels, it recognizes training examples in an
        evaluation.

        A pair without texts identifies what several examples share, such as their documents. If
        examples are windows of questions, as in SQuAD, the pairs are those of the questions.
        """
        return ((example, [repr(example)]) for example in examples)


MakeTask = Callable[[Any, BertConfig, FullTokenizer], Task]
