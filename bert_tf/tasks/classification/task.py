"""Classification and regression of texts and pairs of texts, for `run_classifier.py`.

Shapes: B rows in a batch, E examples, L labels, S max_seq_length.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base import files
from bert_tf.base.errors import Input, UserError, note, warn
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data.features import Feature, InputExample
from bert_tf.data.packing import convert_examples, encode_texts, window_counts
from bert_tf.finetuning.prediction import PairCheck, require_texts
from bert_tf.finetuning.task import Metric, Schema, Task, Traits, Written
from bert_tf.report.evaluation import EvaluationReport, format_table
from bert_tf.tasks.classification import checks
from bert_tf.tasks.classification.dataset_factory import label_source, make_dataset, scale_entry
from bert_tf.tasks.classification.datasets import PROBLEM_TYPE, TextDataset
from bert_tf.tasks.classification.metrics import (
    classification_report,
    describe_report,
    plot_confusion_matrix,
    regression_metrics,
)
from bert_tf.tasks.classification.options import REGRESSION, ClassifierOptions
from bert_tf.tasks.classification.problem_types import LOWER_IS_BETTER, PROBLEM_TYPES, ProblemType
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Number of texts in which entity markers are looked up before training.
_NUM_CHECKED = 10000
# With more labels, the plot is unreadable.
_MAX_PLOTTED_LABELS = 40
_WINDOWS_NOTE = "--long_text=windows does not apply to SavedModels, which truncate long texts"


class Predictions(Sequence[Any]):
    """Predictions of E examples, converted to Python objects on access.

    `values` are probabilities [E, L], numbers [E] or [E, L]; `losses` [E] is None without labels.
    """

    def __init__(self, problem: ProblemType, values: np.ndarray, losses: np.ndarray | None) -> None:
        self._problem, self.values, self.losses = problem, values, losses

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self._problem.prediction(self.values[index].tolist())


@dataclasses.dataclass(frozen=True)
class ClassificationSchema(Schema):
    """The schema of a model, with the dataset and the problem type that it comes from."""

    data: TextDataset = dataclasses.field(kw_only=True)
    problem: ProblemType = dataclasses.field(kw_only=True)


class Classification(Task):
    """Text or text-pair classification."""

    options: ClassifierOptions
    schema: ClassificationSchema

    def __init__(
        self, options: ClassifierOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)
        self._uses_windows = options.long_text == "windows"
        # The markers before two entities, and their ids; {} if the classifier does not read them.
        self._markers = checks.find_markers(options.pooling, tokenizer)

    def infer_schema(self, source: str | RunFolder) -> ClassificationSchema:
        """Infers labels and problem type from a user's training file or task module.

        For published datasets, they are constant.
        """
        data = make_dataset(self.options, source)
        if source == "train" and data.problem_type == REGRESSION and not data.is_published:
            data.entries = {**data.entries, **scale_entry(self.options, data)}
        problem = PROBLEM_TYPES[data.problem_type](data, self.options)
        if source == "train" and self.options.class_weights:
            problem.set_class_weights(data.read("train"))
        return ClassificationSchema(
            tuple(data.labels),
            data.has_pairs,
            {PROBLEM_TYPE: data.problem_type, **data.entries},
            label_source(data, self.options),
            data=data,
            problem=problem,
        )

    @property
    def problem(self) -> ProblemType:
        """The problem type."""
        return self.schema.problem

    @functools.cached_property
    def _check_pairs(self) -> PairCheck:
        return PairCheck(trained_on_pairs=self.schema.data.has_pairs)

    @property
    def traits(self) -> Traits:
        """Metrics and logits of the problem type."""
        names = self.problem.metric_names
        return Traits(
            monitors=tuple(Metric(name, name in LOWER_IS_BETTER) for name in names),
            soft_targets=(("logits", self.problem.soft_target),),
            export_note=_WINDOWS_NOTE if self._uses_windows else "",
            takes_pairs=self.schema.data.has_pairs,
        )

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split; raises a UserError if there are none."""
        examples = self.schema.data.read(split)
        if not examples:
            raise UserError(f"{self.schema.data.describe(split)} contains no examples")
        checks.require_markers(examples, self._markers, self.schema.data.describe(split))
        return examples

    def check(
        self,
        split: str,
        examples: Sequence[InputExample],
        train_examples: Sequence[InputExample],
    ) -> Iterator[str]:
        """Yields what looks wrong in labels and texts."""
        source = self.schema.data.describe(split)
        found = checks.check(self.schema.data, split, examples, train_examples)
        yield from lint.at(source, found)
        if self._markers:
            rows = self.featurize(examples[:_NUM_CHECKED], "predict")["input_ids"]
            yield from lint.at(source, checks.check_markers(examples, rows, self._markers))
        yield from self.tokenizer.check_texts(source, [x for _, x in self.identity(examples)])

    def identity(self, examples: Sequence[InputExample]) -> Iterator[tuple[Any, Sequence[str]]]:
        """Returns each example and its two texts; the second may be empty."""
        return ((example, (example.text_a, example.text_b or "")) for example in examples)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the original's features, without labels for prediction on custom datasets."""
        inputs = super().features("predict")
        labels = (self.problem.target,) if self._has_labels(split) else ()
        return (*inputs, *labels, Feature("is_real_example"))

    def _has_labels(self, split: str) -> bool:
        # As in the original, examples of published test sets have a placeholder as their label.
        return split != "predict" or self.schema.data.is_published

    def featurize(self, examples: Sequence[InputExample], split: str) -> dict[str, np.ndarray]:
        """Returns a row for each example, or for each of its windows."""
        label_ids = self.problem.targets(examples) if self._has_labels(split) else None
        length = self.options.max_seq_length
        return convert_examples(examples, label_ids, length, self.tokenizer, self._uses_windows)

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder with a classification head, which regression also uses."""
        from bert_tf.modeling import BertClassifier
        from bert_tf.modeling.heads import BertEntityClassifier

        arguments = self.config, self.problem.num_outputs
        if self._markers:
            return BertEntityClassifier(*arguments, marker_ids=[*self._markers.values()], **kwargs)
        return BertClassifier(*arguments, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]."""
        return self.problem.loss(outputs["logits"], batch["label_ids"], training)

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> dict[str, Any]:
        """Selects probabilities [B, L], or numbers [B] or [B, L].

        An exported model also returns the most likely label, if each text has one label.
        """
        values = self.problem.values(outputs["logits"])
        return self.problem.serve(values) if serving else {self.problem.output: values}

    def decode(
        self, examples: Sequence[InputExample], outputs: Mapping[str, np.ndarray]
    ) -> Predictions:
        """Converts outputs to predictions; averages the outputs of each example's windows."""
        values, losses = outputs[self.problem.output], outputs.get("loss")
        if self._uses_windows and len(examples):
            counts = self._count_windows(examples)
            values = _average_windows(values, counts)
            losses = None if losses is None else _average_windows(losses, counts)
        values = values * self.problem.scale + self.problem.mean  # float64 if standardized
        return Predictions(self.problem, values, losses)

    def metrics(self, examples: Sequence[InputExample], predictions: Predictions) -> dict[str, Any]:
        """Computes the original's `eval_accuracy` and `eval_loss`, and more."""
        label_ids = self.problem.label_ids(examples)
        return dict(self.problem.metrics(predictions.values, label_ids, predictions.losses))

    def write(
        self, split: str, examples: Sequence[InputExample], predictions: Predictions, folder: str
    ) -> Written:
        """Reports metrics by label, and plots the confusion matrix, or writes predictions.

        The latter are `test_results.tsv`, `test_predictions.tsv`, and GLUE's submission file.
        """
        labels, values = self.schema.labels, predictions.values
        label_ids = None if split == "predict" else self.problem.label_ids(examples)
        for problem in checks.check_predictions(self.problem, values, label_ids):
            warn(problem)
        if label_ids is None:
            return Written(self._write_predictions(examples, values, folder))
        if not labels:
            return Written()
        if self.schema.data.problem_type == REGRESSION:
            report = {}
            for name, values, true in zip(labels, predictions.values.T, label_ids.T, strict=True):
                scores = regression_metrics(values, true, np.square(values - true))
                del scores["eval_loss"]  # the mean over the targets
                report[name] = {n.removeprefix("eval_"): float(x) for n, x in scores.items()}
                note(f"{name}: {', '.join(f'{n} {x:.4g}' for n, x in scores.items())}")
            return Written(entries={"targets": report})
        report = classification_report(predictions.values, label_ids, labels)
        note(describe_report(report))
        matrix = report.get("confusion_matrix")
        if matrix and len(labels) == 2:
            note(f"eval_f1, eval_precision and eval_recall are those of label {labels[1]}")
        if not matrix or len(labels) > _MAX_PLOTTED_LABELS:
            return Written(entries=report)
        path = os.path.join(folder, "confusion_matrix.png")
        files.write_bytes(path, plot_confusion_matrix(matrix, labels))
        return Written([path], report)

    def evaluation_report(
        self, examples: Sequence[InputExample], predictions: Predictions, losses: np.ndarray | None
    ) -> EvaluationReport:
        """Compares predictions with labels."""
        return self.problem.report(examples, predictions.values, predictions.losses)

    def _write_predictions(
        self, examples: Sequence[InputExample], values: np.ndarray, folder: str
    ) -> Sequence[str]:
        rows = values if values.ndim == 2 else values[:, None]
        contents = {
            # As in the original: a line for each example, its values in the order of the labels.
            "test_results.tsv": "".join("\t".join(map(str, row)) + "\n" for row in rows),
            # The original has no such file.
            "test_predictions.tsv": format_table(self.problem.rows(examples, values)),
        }
        if self.options.glue_submission:
            answers = enumerate(map(self.problem.answer, values))
            table = format_table([("index", "prediction"), *answers])
            contents[self.schema.data.submission or ""] = table
        return files.write_texts(folder, contents)

    def from_inputs(self, inputs: Sequence[Any]) -> list[InputExample]:
        """Converts strings, and tuples of two strings."""
        require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
        self._check_pairs(inputs)
        # A placeholder; see `_has_labels`.
        label = next(iter(self.schema.labels), "0") if self.schema.data.is_published else None
        tuples = [item if isinstance(item, tuple) else (item,) for item in inputs]
        examples = [InputExample("", *texts, label=label) for texts in tuples]
        for index, example in enumerate(examples):
            checks.require_markers([example], self._markers, Input(index))
        return examples

    def explain(self, model: Any, item: Any, prediction: Any, label: Any, steps: int) -> Any:
        """Explains the logit of a label, or a number of a regression."""
        from bert_tf.finetuning.explanation import explain  # imports TensorFlow

        labels, is_number = self.schema.labels, self.problem.soft_target == "number"
        if label is None and not is_number:
            label = max(labels, key=prediction.probabilities.__getitem__)
        if isinstance(label, Integral):  # such as 1 or True, whose names are "1" and "true"
            label = str(label).lower()
        if label not in (labels or (None,)):
            names = ", ".join(labels) or "none, for a model with a single number"
            raise UserError(f"label must be one of: {names}. Received: {label!r}")
        rows = self.featurize(self.from_inputs([item]), "predict")
        if len(rows["input_ids"]) > 1:
            raise UserError("explain() needs a shorter text, or long_text='truncate' in Predictor")

        def output(logits: Any) -> Any:
            values = self.problem.values(logits) if is_number else logits
            values = values * np.float32(self.problem.scale)  # without the mean: differences count
            return values[:, labels.index(label)] if label else values

        texts = item if isinstance(item, tuple) else (item,)
        return explain(model, output, label or "", rows, texts, self.tokenizer.reference, steps)

    def epoch_size(self, examples: Sequence[InputExample]) -> int:
        """Returns the number of examples, or of their windows."""
        return int(self._count_windows(examples).sum()) if self._uses_windows else len(examples)

    def _count_windows(self, examples: Sequence[InputExample]) -> np.ndarray:
        a, b = encode_texts(examples, self.tokenizer)
        return window_counts(a.lengths, b.lengths, self.options.max_seq_length)


def _average_windows(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Averages values [rows, ...] to [E, ...], given the number of windows of each example [E]."""
    sums = np.add.reduceat(values.astype(np.float64), np.cumsum(counts) - counts, axis=0)
    return (sums / counts.reshape(-1, *[1] * (values.ndim - 1))).astype(values.dtype)
