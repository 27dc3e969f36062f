"""Estimators for texts, with the methods of scikit-learn's.

from bert_tf import TextClassifier

classifier = TextClassifier("uncased_L-12_H-768_A-12", max_seq_length=128)
classifier.fit(["Good soup.", "Cold soup."], ["pos", "neg"])
classifier.predict(["The soup was cold."])
"""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf import registry
from bert_tf.errors import UserError
from bert_tf.estimators.base import Estimator
from bert_tf.estimators.rows import (
    LIST_TYPES,
    Data,
    class_name,
    plain,
    require_text,
    to_array,
    write_rows,
)
from bert_tf.finetuning import run_metadata
from bert_tf.text_inputs import items_of

# Options of `run_classifier.py` that `fit` determines, or that are about files.
_FILES = {"data_dir", "train_file", "eval_file", "predict_file", "num_runs"}
_TASK = {"do_train", "do_eval", "do_predict", "do_export", "task_name", "task_module"}
_COLUMNS = {"text_column", "text_pair_column", "label_column", "id_column", "has_header", "quoted"}
_TABLE = {"problem_type", "label_separator", "glue_submission"}


class _TextEstimator(Estimator):
    """What `TextClassifier` and `TextRegressor` have in common."""

    # `fit` trains on all texts that it gets.
    _defaults = {"resume": "never", "dev_fraction": 0.0}
    _hidden = frozenset(_FILES | _TASK | _COLUMNS | _TABLE)

    def _to_row(self, text: Any, label: Any, data: Data) -> dict[str, Any]:
        texts = require_text(text, data.place)
        data.require_same(len(texts), "a text", "a pair of texts")
        row = dict(zip(("text", "text_pair"), texts, strict=False))
        return {**row, "label": self._to_label(label, data)}

    def _to_label(self, label: Any, data: Data) -> Any:
        """Converts a label to a value that JSON has."""
        return plain(label, data.place)

    def _to_input(self, text: Any, place: str) -> Any:
        texts = require_text(text, place)
        return texts[0] if len(texts) == 1 else tuple(texts)

    def _run_flags(self, data: Data) -> dict[str, Any]:
        pair = {"text_pair_column": "text_pair"} if data.kind == 2 else {}
        return {"task_name": "tsv", "text_column": "text", "label_column": "label", **pair}


class TextClassifier(_TextEstimator):
    """Classifies texts and pairs of texts, as `run_classifier.py` does with the same flags.

    A text is a string, and a pair a tuple of two strings, or the row of a table with two columns. A
    label is a string, an integer or a boolean. For a model with any number of labels per text, pass
    a list of labels for each text, or a table with a column of 0 and 1 for each label.

    Example:
        classifier = TextClassifier("uncased_L-12_H-768_A-12", max_seq_length=128)
        classifier.fit(texts, labels, validation=(dev_texts, dev_labels), num_train_epochs=2.0)
        classifier.predict(["The soup was cold."])

    Args:
        init_checkpoint: model to start from: a folder, a prefix or a file.
        flags: flags of `run_classifier.py` that are not about files. `output_dir` keeps all files
            of the training run; by default, they are removed.

    Attributes:
        classes_: the labels [L], of the type that `fit` got; strings if the script trained the
            model.
        history: the course of the training, in arrays: `step`, `loss` and `learning_rate` of each
            step; `eval_step`, and metrics such as `eval_accuracy`, of each evaluation.
    """

    _estimator_type = "classifier"

    def predict(self, texts: Any) -> np.ndarray:
        """Returns the most likely label of each text [N].

        For several labels per text, a list for each text, or 0 and 1 [N, L] if `fit` got columns.
        """
        probabilities = self.predict_proba(texts)
        if not self._is("multilabel"):
            return self.classes_[probabilities.argmax(axis=1)]
        chosen = probabilities >= 0.5
        if self._saved.get("as_columns"):
            return chosen.astype(int)
        return to_array([self.classes_[row].tolist() for row in chosen], dtype=object)

    def predict_proba(self, texts: Any) -> np.ndarray:
        """Returns the probability of each label, float32 [N, L], in the order of `classes_`."""
        rows = [[*prediction.probabilities.values()] for prediction in self._predictions(texts)]
        return np.array(rows, np.float32).reshape(-1, len(self.classes_))

    def score(self, texts: Any, labels: Any) -> float:
        """Returns the fraction of texts whose prediction is right, or all of whose labels are."""
        predicted = list(self.predict(texts))
        if self._is("multilabel") and not self._saved.get("as_columns"):
            predicted = [{*row} for row in predicted]
            pairs = zip(predicted, ({*row} for row in items_of(labels, "labels")), strict=True)
        else:
            pairs = zip(predicted, items_of(labels, "labels"), strict=True)
        return float(np.mean([np.all(one == other) for one, other in pairs]))

    def _to_label(self, label: Any, data: Data) -> Any:
        is_list = isinstance(label, LIST_TYPES)
        data.is_multilabel = data.is_multilabel if data.is_multilabel is not None else is_list
        if is_list != data.is_multilabel:
            kinds = "a list, but others are not" if is_list else "no list, but others are"
            raise UserError(f"The label of {data.place} is {kinds}")
        if isinstance(label, Mapping):  # columns
            data.names.update({name: name for name in label})
            return plain(label, data.place)
        if is_list:
            return [class_name(item, data) for item in label]
        return class_name(label, data)

    def _run_flags(self, data: Data) -> dict[str, Any]:
        kind = "multilabel" if data.is_multilabel else "classification"
        if not data.is_multilabel and len(data.names) < 2 and not self.get_params()["labels"]:
            label = next(iter(data.names.values()))
            raise UserError(f"All labels are of one class, {label!r}: there is nothing to learn")
        return {**super()._run_flags(data), "problem_type": kind}

    def _require_kind(self) -> None:
        if self._is("regression"):
            raise UserError("The model predicts numbers: use TextRegressor")


class TextRegressor(_TextEstimator):
    """Predicts a number for each text or pair of texts, or several numbers.

    See `TextClassifier` for texts, arguments and `history`. A label is a number, or a list of
    numbers; for several numbers with names, a table with a column for each.

    Example:
        regressor = TextRegressor("uncased_L-12_H-768_A-12", num_train_epochs=2.0)
        regressor.fit(frame[["sentence1", "sentence2"]], frame["similarity"])
        regressor.predict([("A plane takes off.", "An air plane is taking off.")])
    """

    _estimator_type = "regressor"
    _hidden = _TextEstimator._hidden | {"labels", "skip_labels", "class_weights"}

    def predict(self, texts: Any) -> np.ndarray:
        """Returns the number of each text, float32 [N], or its numbers [N, L]."""
        rows = [
            [*row.values()] if isinstance(row, dict) else row for row in self._predictions(texts)
        ]
        return np.array(rows, np.float32)

    def score(self, texts: Any, labels: Any) -> float:
        """Returns the coefficient of determination R^2, as scikit-learn's regressors do."""
        from sklearn.metrics import r2_score

        return float(r2_score(np.array([*items_of(labels, "labels")]), self.predict(texts)))

    def _run_flags(self, data: Data) -> dict[str, Any]:
        return {**super()._run_flags(data), "problem_type": "regression"}

    def _require_kind(self) -> None:
        if not self._is("regression"):
            raise UserError("The model predicts labels: use TextClassifier")


class TokenClassifier(Estimator):
    """Labels words, for instance as named entities, as `run_ner.py` does with the same flags.

    A text is a list of words, and its label a list of as many labels, such as B-PER and O. For
    arguments and `history`, see `TextClassifier`.

    Example:
        tagger = TokenClassifier("cased_L-12_H-768_A-12", do_lower_case=False)
        tagger.fit([["Anna", "lives", "in", "Rome"]], [["B-PER", "O", "O", "B-LOC"]])
        tagger.predict([["Rome", "sleeps"]])
    """

    _script = "run_ner"
    _hidden = frozenset(_FILES | _TASK | {"token_column", "label_column"})

    def predict(self, texts: Any) -> list[list[str]]:
        """Returns the labels of the words of each text; a string is first split into words."""
        return [list(prediction.labels) for prediction in self._predictions(texts)]

    def score(self, texts: Any, labels: Any) -> float:
        """Returns the script's metric: F1 of the entities, or accuracy if labels are plain."""
        folder = self._trained().path
        options: Any = run_metadata.options_for_model(folder, self._script, **self._device_flags())
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as temporary:
            data = Data(os.path.join(temporary, "eval.jsonl"))
            write_rows(data, texts, labels, self._to_row)
            flags = {"eval_file": data.path, "do_eval": True, "init_checkpoint": folder}
            flags |= {"output_dir": os.path.join(temporary, "output"), "resume": "never"}
            with data.named_in_messages():
                metrics = registry.run(dataclasses.replace(options, **flags)).metrics
        return float(metrics["f1"] if "f1" in metrics else metrics["accuracy"])

    def _to_row(self, words: Any, labels: Any, data: Data) -> dict[str, Any]:
        row = []
        for items, kind in ((words, "words"), (labels, "labels")):
            names = [items] if isinstance(items, str) else list(items_of(items, kind))
            if isinstance(items, str) or not all(isinstance(name, str) for name in names):
                received = f"Received: {items!r:.60}"
                raise UserError(f"The {kind} of {data.place} must be a list of strings. {received}")
            row.append(names)
        if len(row[0]) != len(row[1]) or not row[0]:
            raise UserError(f"{data.place} has {len(row[0])} words, but {len(row[1])} labels")
        return {"tokens": row[0], "ner_tags": row[1]}

    def _to_input(self, text: Any, place: str) -> Any:
        return text if isinstance(text, str) else tuple(items_of(text, place))
