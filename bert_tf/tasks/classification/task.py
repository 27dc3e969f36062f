"""Classification and regression of texts and pairs of texts, for `run_classifier.py`.

Shapes: B rows in a batch, E examples, L labels, S max_seq_length.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.data.feature_specs import Feature
from bert_tf.data.features import InputExample
from bert_tf.data.packing import convert_examples, encode_texts, window_counts
from bert_tf.errors import UserError
from bert_tf.finetuning.prediction import PairCheck, require_texts
from bert_tf.finetuning.task import Task
from bert_tf.progress import log
from bert_tf.tasks.classification.dataset_factory import make_dataset
from bert_tf.tasks.classification.datasets import check_split
from bert_tf.tasks.classification.glue import SUBMISSION_SIZES
from bert_tf.tasks.classification.metrics import classification_report, describe_report
from bert_tf.tasks.classification.options import ClassifierOptions
from bert_tf.tasks.classification.plots import plot_confusion_matrix
from bert_tf.tasks.classification.problem_types import PROBLEM_TYPES, ProblemType
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

TEST_RESULTS = "test_results.tsv"
# Predictions with ids, texts and labels; the original BERT code has no such file.
TEST_PREDICTIONS = "test_predictions.tsv"
CONFUSION_MATRIX = "confusion_matrix.png"
# With more labels, the plot is unreadable.
_MAX_PLOTTED_LABELS = 40


class Predictions(Sequence[Any]):
    """Predictions of E examples, converted to Python objects on access.

    `values` are probabilities [E, L] or numbers [E]; `losses` [E] is None if labels are unknown.
    """

    def __init__(self, problem: ProblemType, values: np.ndarray, losses: np.ndarray | None) -> None:
        self._problem, self.values, self.losses = problem, values, losses

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self._problem.prediction(self.values[index].tolist())


class Classification(Task):
    """Text or text-pair classification; a custom training file is read on construction."""

    options: ClassifierOptions

    def __init__(
        self, options: ClassifierOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.data = data = make_dataset(options)
        # `run.json` gets the problem type that was inferred from the data.
        self.options = dataclasses.replace(options, problem_type=data.problem_type)
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        self.problem = PROBLEM_TYPES[data.problem_type](data, options)
        self.labels = data.labels
        self.targets = (self.problem.target,)
        self.soft_targets = (("logits", self.problem.soft_target),)
        self.text_pairs = data.has_pairs
        self.metric_names = self.problem.metric_names
        self.lower_is_better = self.problem.lower_is_better
        self._uses_windows = options.long_text == "windows"
        self._check_pairs = PairCheck(trained_on_pairs=data.has_pairs)
        self._training_examples: Sequence[InputExample] = ()

    def read(self, split: str) -> list[InputExample]:
        """Reads the examples of a split; raises a UserError if there are none."""
        examples, path = self.data.read(split), self.data.describe(split)
        if not examples:
            raise UserError(f"{path} contains no examples")
        if split == "train":
            self._training_examples = examples
            self.problem.set_class_weights(examples)
            self.text_pairs, self.run_entries = self.data.has_pairs, self.data.run_entries
        check_split(self.data, split, examples, self._training_examples)
        self.tokenizer.warn_about_texts(path, self.texts(examples))
        return examples

    def texts(self, examples: Sequence[InputExample]) -> list[tuple[str, str]]:
        """Returns the two texts of each example; the second may be empty."""
        return [(example.text_a, example.text_b or "") for example in examples]

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the original's features, without labels for prediction on custom datasets."""
        inputs = super().features("predict")
        labels = self.targets if self._has_labels(split) else ()
        return (*inputs, *labels, Feature("is_real_example"))

    def _has_labels(self, split: str) -> bool:
        # As in the original, examples of published test sets have a placeholder as their label.
        return split != "predict" or self.data.is_published

    def featurize(self, examples: Sequence[InputExample], split: str) -> dict[str, np.ndarray]:
        """Returns a row for each example, or for each of its windows."""
        label_ids = self.problem.label_ids(examples) if self._has_labels(split) else None
        length = self.options.max_seq_length
        return convert_examples(examples, label_ids, length, self.tokenizer, self._uses_windows)

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder with a classification head, which regression also uses."""
        from bert_tf.modeling import BertClassifier

        return BertClassifier(self.config, self.problem.num_outputs, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the loss of each row, [B]."""
        return self.problem.loss(outputs["logits"], batch["label_ids"], training)

    def fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Selects probabilities [B, L], or numbers [B]."""
        return {self.problem.output: self.problem.values(outputs["logits"])}

    def serve(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Selects numbers, or probabilities and, if each text has one label, the most likely."""
        return self.problem.serve(self.problem.values(outputs["logits"]))

    def decode(
        self, examples: Sequence[InputExample], outputs: Mapping[str, np.ndarray]
    ) -> Predictions:
        """Converts outputs to predictions; averages the outputs of each example's windows."""
        values, losses = outputs[self.problem.output], outputs.get("loss")
        if self._uses_windows and len(examples):
            counts = self._count_windows(examples)
            values = _average_windows(values, counts)
            losses = None if losses is None else _average_windows(losses, counts)
        return Predictions(self.problem, values, losses)

    def metrics(self, examples: Sequence[InputExample], predictions: Predictions) -> dict[str, Any]:
        """Computes the original's `eval_accuracy` and `eval_loss`, and more."""
        label_ids = self.problem.label_ids(examples)
        return dict(self.problem.metrics(predictions.values, label_ids, predictions.losses))

    def report(
        self, examples: Sequence[InputExample], predictions: Predictions, output_dir: str
    ) -> tuple[Mapping[str, Any], Iterable[str]]:
        """Reports metrics by label, and plots the confusion matrix."""
        if not self.labels:
            return {}, ()
        label_ids = self.problem.label_ids(examples)
        report = classification_report(predictions.values, label_ids, self.labels)
        log.info("%s", describe_report(report))
        matrix = report.get("confusion_matrix")
        if matrix and len(self.labels) == 2:
            message = "eval_f1, eval_precision and eval_recall are those of label %s"
            log.info(message, self.labels[1])
        if not matrix or len(self.labels) > _MAX_PLOTTED_LABELS:
            return report, ()
        path = os.path.join(output_dir, CONFUSION_MATRIX)
        files.write_bytes(path, plot_confusion_matrix(matrix, self.labels))
        return report, [path]

    def write_predictions(
        self, examples: Sequence[InputExample], predictions: Predictions, output_dir: str
    ) -> list[str]:
        """Writes `test_results.tsv`, `test_predictions.tsv`, and GLUE's submission file."""
        values = predictions.values
        rows = values if values.ndim == 2 else values[:, None]
        contents = {
            # As in the original: a line for each example, its values in the order of the labels.
            TEST_RESULTS: "".join("\t".join(map(str, row)) + "\n" for row in rows),
            TEST_PREDICTIONS: _format_table(_prediction_rows(examples, values, self.problem)),
        }
        if self.options.glue_submission:
            answers = enumerate(map(self.problem.answer, values))
            table = _format_table([("index", "prediction"), *answers])
            name = self.data.submission or ""
            contents[name] = table
            if len(examples) != SUBMISSION_SIZES[name]:
                sizes = len(examples), SUBMISSION_SIZES[name]
                message = "%s has %d predictions, but gluebenchmark.com expects %d. Check %s"
                log.warning(message, name, *sizes, self.data.describe("predict"))
        return files.write_texts(output_dir, contents)

    def from_inputs(self, inputs: Sequence[Any]) -> list[InputExample]:
        """Converts strings, and tuples of two strings."""
        require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
        self._check_pairs(inputs)
        # A placeholder; see `_has_labels`.
        label = next(iter(self.labels), "0") if self.data.is_published else None
        tuples = [item if isinstance(item, tuple) else (item,) for item in inputs]
        return [InputExample("", *texts, label=label) for texts in tuples]

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


def _prediction_rows(
    examples: Sequence[InputExample], values: np.ndarray, problem: ProblemType
) -> Iterator[Sequence[Any]]:
    has_pairs = any(example.text_b for example in examples)
    text_columns = ["text", "text_pair"] if has_pairs else ["text"]
    probability_columns = [f"probability_{label}" for label in problem.labels]
    yield ["id", *text_columns, problem.answer_column, *probability_columns]
    for example, value in zip(examples, values, strict=True):
        texts = [example.text_a, example.text_b or ""] if has_pairs else [example.text_a]
        cells = [problem.answer(value), *value] if problem.labels else [value]
        yield [example.guid, *texts, *cells]


def _format_table(rows: Iterable[Sequence[Any]]) -> str:
    """Formats tab-separated lines; cells with quotes are quoted, as most programs expect.

    Tabs and line breaks in texts become spaces, so that each row is a single line.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for row in rows:
        cells = (str(cell) for cell in row)
        writer.writerow([" ".join(cell.replace("\t", " ").splitlines()) for cell in cells])
    return text.getvalue()
