"""Classes of texts and of pairs of texts, or numbers: what `run_classifier.py` runs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from bert_tf import files
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.config import BertConfig
from bert_tf.data import glue
from bert_tf.data.features import InputExample, log_examples
from bert_tf.data.packing import convert_examples
from bert_tf.data.records import Feature, sequence_features
from bert_tf.errors import UserError
from bert_tf.evaluation.metrics import (
    classification_metrics,
    regression_metrics,
    require_scipy,
)
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import ClassifierOptions
from bert_tf.tasks import finetune
from bert_tf.tasks.base import Task
from bert_tf.tasks.prediction import require_texts
from bert_tf.tasks.start import load_config_and_tokenizer
from bert_tf.tokenization import FullTokenizer

TEST_RESULTS = "test_results.tsv"

# The original's data sets call the set that one evaluates on "dev", the set to predict "test".
_FILE_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


class ClassPrediction(NamedTuple):
    """The likeliest label of a text, and how likely each one is."""

    label: str
    probabilities: dict[str, float]


class Classification(Task):
    """A TSV data set of `bert_tf.data.glue` as a fine-tuning task.

    Args:
        tsv_task: files, columns and labels.
        data_dir: folder with the files.
        config: the model.
        tokenizer: fits the model's vocabulary.
        max_seq_length: length of the inputs.
    """

    result_files = (TEST_RESULTS,)

    def __init__(
        self,
        tsv_task: glue.TsvTask,
        data_dir: str,
        config: BertConfig,
        tokenizer: FullTokenizer,
        max_seq_length: int,
    ) -> None:
        self.tsv_task = tsv_task
        self.data_dir = data_dir
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        self.max_seq_length = max_seq_length

    def features(self, split: str) -> tuple[Feature, ...]:
        """`input_ids`, `input_mask`, `segment_ids`, `label_ids`, `is_real_example`."""
        return (
            *sequence_features(self.max_seq_length),
            Feature("label_ids"),
            Feature("is_real_example"),
        )

    def read_examples(self, split: str) -> list[InputExample]:
        """The examples of the data set's file for this split; there is at least one."""
        file_split = _FILE_SPLITS[split]
        examples = glue.read_examples(self.tsv_task, file_split, self.data_dir)
        if not examples:
            path = os.path.join(self.data_dir, self.tsv_task.splits[file_split].file)
            raise UserError(f"{path} has not one example: there is nothing to {split} on")
        log_examples(examples, self.tsv_task.labels, self.max_seq_length, self.tokenizer.reference)
        return examples

    def to_features(self, examples: Sequence[InputExample], split: str) -> dict[str, np.ndarray]:
        """One row for each example."""
        return convert_examples(examples, self.tsv_task.labels, self.max_seq_length, self.tokenizer)

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder and classifier."""
        return BertClassifier(self.config, len(self.tsv_task.labels), **kwargs)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Cross entropy [B]."""
        return cross_entropy(outputs["logits"], batch["label_ids"])

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What `classification_metrics` takes."""
        return {
            "probabilities": outputs["probabilities"],
            "label_ids": batch["label_ids"],
            "per_example_loss": self.loss(outputs, batch),
            "is_real_example": batch["is_real_example"],
        }

    def metrics(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """`eval_accuracy` and `eval_loss`."""
        return dict(classification_metrics(**results))

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`probabilities` [B, L]."""
        return {"probabilities": outputs["probabilities"]}

    def write_predictions(
        self,
        examples: Sequence[InputExample],
        predictions: Mapping[str, np.ndarray],
        output_dir: str,
    ) -> list[str]:
        """`test_results.tsv`: a line for each example, its probabilities in label order."""
        lines = ["\t".join(str(p) for p in row) + "\n" for row in predictions["probabilities"]]
        path = os.path.join(output_dir, TEST_RESULTS)
        files.write_text(path, "".join(lines))
        return [path]

    def examples_of(self, inputs: Sequence[Any]) -> list[InputExample]:
        """Texts, or tuples of two."""
        require_texts(inputs, [1, 2], "a text, or a tuple of two")
        # Which label makes no difference.
        label = next(iter(self.tsv_task.labels), "0")
        pairs = [given if isinstance(given, tuple) else (given,) for given in inputs]
        return [InputExample("", *texts, label=label) for texts in pairs]

    def predictions_of(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> list[ClassPrediction]:
        """The labels of the texts."""
        rows = results["probabilities"].tolist() if len(examples) else []
        labels = self.tsv_task.labels
        found = [dict(zip(labels, row, strict=True)) for row in rows]
        return [ClassPrediction(max(row, key=row.__getitem__), row) for row in found]


class Regression(Classification):
    """A TSV data set whose labels are numbers, STS-B for instance; see `Classification`.

    The head has one output, and the loss is its squared error.
    """

    def features(self, split: str) -> tuple[Feature, ...]:
        """`input_ids`, `input_mask`, `segment_ids`, `label_ids` (numbers), `is_real_example`."""
        return (
            *sequence_features(self.max_seq_length),
            Feature("label_ids", dtype="float32"),
            Feature("is_real_example"),
        )

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder, and a head with one output."""
        return BertClassifier(self.config, 1, **kwargs)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Squared error [B]."""
        return keras.ops.square(outputs["logits"][:, 0] - batch["label_ids"])

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What `regression_metrics` takes."""
        return {
            **self.predict_outputs(outputs, batch),
            "label_ids": batch["label_ids"],
            "per_example_loss": self.loss(outputs, batch),
        }

    def metrics(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """`eval_pearson`, `eval_spearman` and `eval_loss`."""
        return dict(regression_metrics(**results))

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`values` [B]."""
        return {"values": outputs["logits"][:, 0]}

    def write_predictions(
        self,
        examples: Sequence[InputExample],
        predictions: Mapping[str, np.ndarray],
        output_dir: str,
    ) -> list[str]:
        """`test_results.tsv`: a line for each example with its number."""
        path = os.path.join(output_dir, TEST_RESULTS)
        files.write_text(path, "".join(f"{value}\n" for value in predictions["values"]))
        return [path]

    def predictions_of(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> list[float]:
        """The numbers of the texts."""
        return results["values"].tolist() if len(examples) else []


def make_task(options: ClassifierOptions) -> Classification:
    """The task that the options describe.

    Raises:
        UserError: configuration and vocabulary are not right, or there is no such task.
    """
    tsv_task = glue.task_named(options.task_name or "")
    config, tokenizer = load_config_and_tokenizer(options)
    kind = Classification if tsv_task.labels else Regression
    return kind(tsv_task, options.data_dir or "", config, tokenizer, options.max_seq_length)


def run(options: ClassifierOptions) -> finetune.Results:
    """Fine-tunes, evaluates and predicts, as the options say.

    Returns:
        The figures of the evaluation and the files that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are not right; nothing
            in `output_dir` has been changed then.
    """
    options.check()
    task = make_task(options)
    if options.do_eval and isinstance(task, Regression):
        require_scipy()
    return finetune.run(task, options)
