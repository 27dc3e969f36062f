"""One label of several for each text or pair of texts; and what `run_classifier.py` runs.

B rows of a batch, E examples, L labels.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import files
from bert_tf.data.datasets import CLASSIFICATION, MULTILABEL, REGRESSION
from bert_tf.data.features import InputExample
from bert_tf.data.packing import label_ids_of
from bert_tf.data.records import Feature
from bert_tf.evaluation.metrics import (
    classification_metrics,
    classification_report,
    describe_report,
)
from bert_tf.evaluation.plots import plot_confusion_matrix
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import ClassifierOptions
from bert_tf.progress import log
from bert_tf.tasks import finetune, run_directory, text_sources
from bert_tf.tasks.class_weights import label_weights
from bert_tf.tasks.multilabel import MultiLabel
from bert_tf.tasks.regression import Regression
from bert_tf.tasks.results import result_path
from bert_tf.tasks.start import load_config_and_tokenizer, located
from bert_tf.tasks.text_task import TextTask

CONFUSION_MATRIX = "confusion_matrix.png"
# More are not to be told apart in a picture.
_MOST_LABELS_IN_A_PICTURE = 40


class ClassPrediction(NamedTuple):
    """The likeliest label of a text, and how likely each one is."""

    label: str
    probabilities: dict[str, float]


class Classification(TextTask):
    """A set whose texts have one label each."""

    @property
    def result_files(self) -> Sequence[str]:
        """With the picture of what was taken for what."""
        return (*super().result_files, CONFUSION_MATRIX)

    @property
    def best_metrics(self) -> Sequence[str]:
        """Of two labels also the figures of the second one."""
        of_two = ("f1", "precision", "recall") if len(self.data.labels) == 2 else ()
        of_all = ("f1_macro", "f1_micro", "precision_macro", "recall_macro", "matthews", "loss")
        found = ("accuracy", *of_two, *of_all)
        usual = self.data.primary_metric
        return (usual, *(name for name in found if name != usual)) if usual else found

    def label_feature(self) -> Feature:
        """The place of the label among all."""
        return Feature("label_ids")

    def label_ids(self, examples: Sequence[InputExample]) -> np.ndarray:
        """int32 [E]."""
        return label_ids_of(examples, self.data.labels)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Cross entropy [B]."""
        return cross_entropy(outputs["logits"], batch["label_ids"])

    def training_loss(self, examples: Sequence[InputExample]) -> Callable:
        """With `class_weights` the loss of a row counts as much as its label."""
        if not self.options.class_weights:
            return self.loss
        counts = np.bincount(self.label_ids(examples), minlength=len(self.data.labels))
        weights = label_weights(self.options.class_weights, self.data.labels, counts)
        return lambda outputs, batch: (
            ops.take(weights, batch["label_ids"]) * self.loss(outputs, batch)
        )

    def metrics(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """The original's `eval_accuracy` and `eval_loss`, and figures by label."""
        return dict(classification_metrics(**results))

    def write_evaluation(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray], output_dir: str
    ) -> tuple[Mapping[str, Any], list[str]]:
        """Figures of each label, and a picture of what was taken for what."""
        names = ("probabilities", "label_ids", "is_real_example")
        labels = self.data.labels
        report = classification_report(*(results[name] for name in names), labels=labels)
        log.info("%s", describe_report(report))
        if len(labels) == 2:
            log.info("eval_f1, eval_precision and eval_recall are those of %s", labels[1])
        if len(labels) > _MOST_LABELS_IN_A_PICTURE:
            return report, []
        path = result_path(output_dir, CONFUSION_MATRIX, self.result_suffix)
        files.write_bytes(path, plot_confusion_matrix(report["confusion_matrix"], labels))
        return report, [path]

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`probabilities` [B, L]."""
        return {"probabilities": outputs["probabilities"]}

    def served_names(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """`label`: the likeliest."""
        labels = tf.constant(list(self.data.labels))
        best = tf.argmax(outputs["probabilities"], axis=-1)
        return {**outputs, "label": tf.gather(labels, best)}

    def columns(
        self, predictions: Mapping[str, np.ndarray]
    ) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """The likeliest label, and the probability of each one."""
        names = ["label", *(f"probability_{label}" for label in self.data.labels)]
        pairs = zip(self.answers(predictions), predictions["probabilities"], strict=True)
        return names, ([label, *row] for label, row in pairs)

    def answers(self, predictions: Mapping[str, np.ndarray]) -> list[str]:
        """The likeliest labels."""
        best = predictions["probabilities"].argmax(axis=1)
        return [self.data.labels[int(place)] for place in best]

    def predictions_of(
        self, examples: Sequence[InputExample], results: Mapping[str, np.ndarray]
    ) -> list[ClassPrediction]:
        """The labels of the texts."""
        rows = results["probabilities"].tolist() if len(examples) else []
        labels = self.data.labels
        found = [dict(zip(labels, row, strict=True)) for row in rows]
        return [ClassPrediction(max(row, key=row.__getitem__), row) for row in found]


_KINDS = {CLASSIFICATION: Classification, MULTILABEL: MultiLabel, REGRESSION: Regression}


def make_task(options: ClassifierOptions) -> TextTask:
    """The task that the options describe, to be asked; no data are read for it.

    Raises:
        UserError: configuration and vocabulary are not right, there is no such task, or the labels
            of the model are not known.
    """
    options = located(options)
    config, tokenizer = load_config_and_tokenizer(options)
    data = text_sources.of_checkpoint(options)
    return _KINDS[data.problem_type](data, options, config, tokenizer)


def run(options: ClassifierOptions) -> finetune.Results:
    """Fine-tunes, evaluates and predicts, as the options say.

    Returns:
        The figures of the evaluation and the files that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are not right; nothing
            in `output_dir` has been changed then.
    """
    options.check()
    options = located(options)
    # The model is looked at first: its files are small, and a set may be large.
    config, tokenizer = load_config_and_tokenizer(options)
    data = text_sources.of_files(options)
    # What was found out about the data is kept with the training, for those who use the model.
    options = dataclasses.replace(options, problem_type=data.problem_type)
    task = _KINDS[data.problem_type](data, options, config, tokenizer)
    task.result_suffix = "" if options.do_train else run_directory.check_evaluated(options)
    return finetune.run(task, options)
