"""What tasks on texts and pairs of texts have in common, whatever their labels are.

B rows of a batch, E examples, L labels.
"""

import abc
import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import files
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.config import BertConfig
from bert_tf.data.datasets import TextDataset, check_split
from bert_tf.data.features import InputExample, log_examples
from bert_tf.data.packing import convert_examples, encode_texts
from bert_tf.data.records import Feature, sequence_features
from bert_tf.data.text_windows import window_counts
from bert_tf.errors import UserError
from bert_tf.modeling import BertClassifier
from bert_tf.options import ClassifierOptions
from bert_tf.tasks import labels
from bert_tf.tasks.base import Task
from bert_tf.tasks.prediction import PairCheck, require_texts
from bert_tf.tasks.results import result_path
from bert_tf.tokenization import FullTokenizer

TEST_RESULTS = "test_results.tsv"
# The same for people: the original has no such file.
TEST_PREDICTIONS = "test_predictions.tsv"

_MOST_SPLITS = 3


class TextTask(Task):
    """A set of texts or pairs of texts as a fine-tuning task.

    Args:
        data: where examples come from.
        options: of the script.
        config: the model.
        tokenizer: fits the model's vocabulary.
    """

    def __init__(
        self,
        data: TextDataset,
        options: ClassifierOptions,
        config: BertConfig,
        tokenizer: FullTokenizer,
    ) -> None:
        self.data = data
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        self.in_windows = options.long_text == "windows"
        # Of the sets of a run; evaluations ask for theirs again and again.
        self._counted: list[tuple[Sequence[InputExample], np.ndarray]] = []
        self._check_pairs = PairCheck(data.has_pairs)
        self._training: list[InputExample] = []

    @property
    def result_files(self) -> Sequence[str]:
        """Predictions, also in the form of GLUE if that is asked for."""
        submission = [self.data.submission or ""] * self.options.glue_submission
        return (TEST_RESULTS, TEST_PREDICTIONS, *submission)

    @abc.abstractmethod
    def label_feature(self) -> Feature:
        """Declares `label_ids`."""

    @abc.abstractmethod
    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        """The labels of examples in numbers [E, ..]."""

    @abc.abstractmethod
    def columns(
        self, predictions: Mapping[str, np.ndarray]
    ) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """Names and values of the columns of `TEST_PREDICTIONS` that are of the prediction."""

    @abc.abstractmethod
    def answers(self, predictions: Mapping[str, np.ndarray]) -> list[str]:
        """What is predicted for each example, in one word."""

    def features(self, split: str) -> tuple[Feature, ...]:
        """`input_ids`, `input_mask`, `segment_ids`, `label_ids`, `is_real_example`.

        A set of a user's own has no `label_ids` in what is to be predicted.
        """
        return (
            *sequence_features(self.options.max_seq_length),
            *((self.label_feature(),) if self._has_labels(split) else ()),
            Feature("is_real_example"),
        )

    def _has_labels(self, split: str) -> bool:
        return split != "predict" or self.data.is_published

    def read_examples(self, split: str) -> list[InputExample]:
        """The examples of the set's file for this split; there is at least one."""
        examples = self.data.read(split)
        if not examples:
            raise UserError(
                f"{self.data.describe(split)} has not one example: there is nothing to {split} on"
            )
        self._training = examples if split == "train" else self._training
        check_split(self.data, split, examples, self._training)
        texts = [(example.text_a, example.text_b or "") for example in examples]
        self.tokenizer.warn_of_unknown(self.data.describe(split), texts)
        length, reference = self.options.max_seq_length, self.tokenizer.reference
        log_examples(examples, self.data.labels, length, reference)
        return examples

    def num_rows(self, examples: Sequence[InputExample]) -> int:
        """One for each example, or for each of its windows."""
        return int(self._window_counts(examples).sum()) if self.in_windows else len(examples)

    def record_settings(self) -> Any:
        """Labels, length and what is done with long texts."""
        options = self.options
        return self.data.labels, self.data.problem_type, options.max_seq_length, options.long_text

    def to_features(self, examples: Sequence[InputExample], split: str) -> dict[str, np.ndarray]:
        """One row for each example, or for each of its windows."""
        label_ids = self.label_ids(examples) if self._has_labels(split) else None
        length = self.options.max_seq_length
        return convert_examples(examples, label_ids, length, self.tokenizer, self.in_windows)

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder and classifier."""
        return BertClassifier(self.config, len(self.data.labels), **kwargs)

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What figures are made of: predictions, what is right, and the loss of each row."""
        return {
            **self.predict_outputs(outputs, batch),
            **{name: batch[name] for name in ("label_ids", "is_real_example")},
            "per_example_loss": self.loss(outputs, batch),
        }

    def assets(self) -> dict[str, str]:
        """`labels.txt`, where there are labels."""
        return labels.contents(self.data.labels) if self.data.labels else {}

    def combine(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Means over the windows of each example; labels, which are the same in all, are kept."""
        if not self.in_windows or not results:
            return results
        counts = self._window_counts(examples)
        first = np.cumsum(counts) - counts
        return {
            name: _means(values, first, counts) if values.dtype.kind == "f" else values[first]
            for name, values in results.items()
        }

    def _window_counts(self, examples: Sequence[InputExample]) -> np.ndarray:
        for known, counts in self._counted:
            if known is examples:
                return counts
        counts = self._count_windows(examples)
        self._counted = [*self._counted, (examples, counts)][-_MOST_SPLITS:]
        return counts

    def _count_windows(self, examples: Sequence[InputExample]) -> np.ndarray:
        a, b = encode_texts(examples, self.tokenizer)
        length_b = b.lengths if b else np.zeros_like(a.lengths)
        return window_counts(a.lengths, length_b, self.options.max_seq_length)

    @property
    def takes_pairs(self) -> bool:
        """Whether the set has pairs."""
        return bool(self.data.has_pairs)

    def write_predictions(
        self,
        examples: Sequence[InputExample],
        predictions: Mapping[str, np.ndarray],
        output_dir: str,
    ) -> list[str]:
        """`test_results.tsv`, as the original; `test_predictions.tsv`, with names.

        With `glue_submission` the file that is handed in there, too.
        """
        contents = {
            TEST_RESULTS: "".join(self._result_lines(predictions)),
            TEST_PREDICTIONS: _table(self._prediction_rows(examples, predictions)),
        }
        suffix = self.result_suffix
        contents = {result_path("", name, suffix): text for name, text in contents.items()}
        if self.options.glue_submission and self.data.submission:
            answers = enumerate(self.answers(predictions))
            contents[self.data.submission] = _table([("index", "prediction"), *answers])
        for name, text in contents.items():
            files.write_text(os.path.join(output_dir, name), text)
        return [os.path.join(output_dir, name) for name in contents]

    def _result_lines(self, predictions: Mapping[str, np.ndarray]) -> Iterable[str]:
        """A line for each example: its probabilities in label order, or its number."""
        (values,) = predictions.values()
        rows = values if values.ndim == 2 else values[:, None]
        return ("\t".join(str(value) for value in row) + "\n" for row in rows)

    def _prediction_rows(
        self, examples: Sequence[InputExample], predictions: Mapping[str, np.ndarray]
    ) -> Iterable[Sequence[Any]]:
        names, rows = self.columns(predictions)
        pairs = any(example.text_b for example in examples)
        yield ["id", "text", *(["text_pair"] if pairs else []), *names]
        for example, row in zip(examples, rows, strict=True):
            texts = [example.text_a, example.text_b or ""] if pairs else [example.text_a]
            yield [example.guid, *texts, *row]

    def examples_of(self, inputs: Sequence[Any]) -> list[InputExample]:
        """Texts, or tuples of two."""
        require_texts(inputs, [1, 2], "a text, or a tuple of two")
        self._check_pairs(inputs)
        # Which label makes no difference.
        label = next(iter(self.data.labels), "0") if self.data.is_published else None
        pairs = [given if isinstance(given, tuple) else (given,) for given in inputs]
        return [InputExample("", *texts, label=label) for texts in pairs]


def _means(values: np.ndarray, first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Of `values` [rows, ..], those of the `counts` rows from each of `first` on [E, ..]."""
    sums = np.add.reduceat(values.astype(np.float64), first, axis=0)
    return (sums / counts.reshape(-1, *[1] * (values.ndim - 1))).astype(values.dtype)


def _table(rows: Iterable[Sequence[Any]]) -> str:
    """Lines of cells between tabs. A cell with a quote in it stands in quotes.

    Programs that read such tables take a quote at the begin of a cell for one that is closed
    somewhere. Tabs and line ends inside of texts become spaces, so that a row is a line.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for row in rows:
        cells = (str(cell) for cell in row)
        writer.writerow([" ".join(cell.replace("\t", " ").splitlines()) for cell in cells])
    return text.getvalue()
